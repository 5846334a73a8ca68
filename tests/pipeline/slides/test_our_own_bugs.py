"""Our own bugs propagate unchanged: only calls of libraries are guarded, and no user is advised to copy the file."""

from __future__ import annotations

import pytest

from pipeline.box import Box
from pipeline.slides.registry import open_slide
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid, write_pyramid
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ndpi import write_ndpi
from tests.pipeline.slides.make_ome_zarr import write_ome_zarr

LEVELS = halved(sample_image(300, 200), 1)
WRITERS = {
    "tiff": lambda folder: write_jpeg_pyramid(folder / "a.tiff", LEVELS, tile_px=64),
    "strips": lambda folder: write_pyramid(folder / "a.tiff", LEVELS[:1], tile_px=None, compression="lzw"),
    "dicom": lambda folder: write_dicom(folder / "a.dcm", LEVELS[0]),
    "ome-zarr": lambda folder: write_ome_zarr(folder / "a.zarr", LEVELS),
    "openslide": lambda folder: write_ndpi(folder / "a.ndpi", halved(sample_image(512, 384), 1)).path,
}
OURS = [
    ("tiff", "pipeline.slides.tiff.pages.is_reduced_copy"),
    ("tiff", "pipeline.slides.tiff.metadata.search_mpp"),
    ("tiff", "pipeline.slides.tiff.validate.is_rgb"),
    ("tiff", "pipeline.slides.tiff.pixels.jpeg.check_end"),
    ("tiff", "pipeline.slides.tiff.streams.jpeg.parse"),
    ("strips", "pipeline.slides.tiff.pixels.SegmentReader.read"),
    ("dicom", "pipeline.slides.dicom.headers.header._Elements.next_element"),
    ("dicom", "pipeline.slides.dicom.metadata.search_mpp"),
    ("dicom", "pipeline.slides.dicom.validate._check_pixels_are_rgb"),
    ("dicom", "pipeline.slides.dicom.streams.jpeg.parse"),
    ("dicom", "pipeline.slides.dicom.frames.FrameSource.payload"),
    ("ome-zarr", "pipeline.slides.ome_zarr.metadata._axes"),
    ("ome-zarr", "pipeline.slides.ome_zarr.metadata.search_mpp"),
    ("ome-zarr", "pipeline.slides.ome_zarr.pixels.paste"),
    ("openslide", "pipeline.slides.openslide.validate.has_plain_sizes"),
    ("openslide", "pipeline.slides.openslide.metadata.search_mpp"),
    ("openslide", "pipeline.slides.openslide.pixels.OpenSlideLevel._location_xy0"),
]


def read_everything(path):
    with open_slide(path) as slide:
        for level, size in enumerate(slide.info.levels):
            slide.read_region(level, Box(0, 0, size.width_px, size.height_px))
            encoded = slide.encoded_level(level)
            if hasattr(encoded, "streams"):
                encoded.streams(0, range(encoded.columns))


@pytest.mark.parametrize("bug", [AttributeError, TypeError, AssertionError, KeyError])
@pytest.mark.parametrize(("family", "ours"), OURS)
def test_a_bug_of_ours_is_not_taken_for_a_damaged_file(tmp_path, monkeypatch, family, ours, bug):
    path = WRITERS[family](tmp_path)
    read_everything(path)

    def fail(*_, **__):
        raise bug("planted")

    monkeypatch.setattr(ours, fail)

    with pytest.raises(bug, match="planted"):
        read_everything(path)
