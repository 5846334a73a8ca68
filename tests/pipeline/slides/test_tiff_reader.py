"""TIFF slides read tile by tile: right colours, right levels, and a refusal where colours are in doubt."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openslide
import pytest
import tifffile
from PIL import Image

from pipeline.box import Box
from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.registry import open_slide
from tests.pipeline.make import (
    PHOTOMETRIC,
    halved,
    overwrite_tag,
    sample_image,
    write_aperio_j2k,
    write_jpeg_pyramid,
    write_pyramid,
)
from training.foundation.errors import UnreadableError


def read_all(path, level=0):
    with open_slide(path) as slide:
        size = slide.info.levels[level]
        return slide.read_region(level, Box(0, 0, size.width_px, size.height_px))


@pytest.mark.parametrize("tile_px", [64, None], ids=["tiles", "strips"])
@pytest.mark.parametrize("compression", ["lzw", "deflate", "zstd", "packbits", None])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_lossless_files_read_back_as_written(tmp_path, tile_px, compression, byteorder):
    pixels = sample_image(150, 110)
    path = tmp_path / "a.tiff"
    with tifffile.TiffWriter(path, byteorder=byteorder, bigtiff=byteorder == ">") as tiff:
        tile = (tile_px, tile_px) if tile_px else None
        tiff.write(pixels, photometric="rgb", tile=tile, compression=compression, rowsperstrip=None if tile else 16)

    np.testing.assert_array_equal(read_all(path), pixels)


@pytest.mark.parametrize(
    "box", [(0, 0, 150, 110), (-7, -9, 40, 30), (140, 100, 30, 30), (300, 0, 5, 5), (60, 60, 9, 9)]
)
@pytest.mark.parametrize("tile_px", [64, None], ids=["tiles", "strips"])
def test_a_region_over_the_border_is_white_beyond(tmp_path, tile_px, box):
    pixels = sample_image(150, 110)
    path = write_pyramid(tmp_path / "a.tiff", [pixels], tile_px=tile_px, compression="lzw")
    around = np.pad(pixels, ((400, 400), (400, 400), (0, 0)), constant_values=255)
    x, y, width, height = box

    with open_slide(path) as slide:
        region = slide.read_region(0, Box(*box))

    np.testing.assert_array_equal(region, around[400 + y : 400 + y + height, 400 + x : 400 + x + width])


@pytest.mark.parametrize(
    "options",
    [
        {"photometric": "rgb", "subsampling": "444"},
        {"photometric": "ycbcr"},
        {"photometric": "ycbcr", "shared_tables": False},
    ],
)
def test_jpeg_tiles_read_as_openslide_reads_them(tmp_path, options):
    path = write_jpeg_pyramid(tmp_path / "a.tiff", halved(sample_image(600, 520), 1), **options)

    with openslide.OpenSlide(path) as slide:
        for level in (0, 1):
            wanted = np.asarray(slide.read_region((0, 0), level, slide.level_dimensions[level]))[..., :3]
            np.testing.assert_array_equal(read_all(path, level), wanted)


def test_strips_are_decoded_once_however_many_threads_ask(tmp_path):
    pixels = sample_image(900, 700)
    path = write_pyramid(tmp_path / "a.tiff", [pixels], tile_px=None, compression="lzw", rowsperstrip=16)
    corners = [(x, y) for y in range(0, 700, 100) for x in range(0, 900, 100)]

    with open_slide(path) as slide, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda at: slide.read_region(0, Box(*at, 100, 100)), corners))

    for (x, y), part in zip(corners, parts, strict=True):
        np.testing.assert_array_equal(part, pixels[y : y + 100, x : x + 100])


@pytest.mark.parametrize("compression", [33003, 33005])
def test_aperio_jpeg2000_has_the_colours_that_openslide_shows(tmp_path, compression):
    """33003 holds Y, Cb, Cr without declaring it: tifffile would return them as R, G, B."""
    rgb = sample_image(512, 300)
    stored = rgb if compression == 33005 else np.asarray(Image.fromarray(rgb).convert("YCbCr"))
    path = write_aperio_j2k(tmp_path / "a.svs", stored, compression=compression)

    region = read_all(path)

    with openslide.OpenSlide(path) as slide:
        wanted = np.asarray(slide.read_region((0, 0), 0, (512, 300)))[..., :3]
    np.testing.assert_array_equal(region, wanted)
    assert np.abs(region.astype(int) - rgb).max() <= 3


@pytest.mark.parametrize("compression", ["lzw", "deflate", None])
def test_ycbcr_without_jpeg_is_refused_since_tifffile_would_show_it_as_rgb(tmp_path, compression):
    path = write_pyramid(tmp_path / "a.tiff", [sample_image(150, 110)], tile_px=64, compression=compression)
    overwrite_tag(path, PHOTOMETRIC, 6)

    with pytest.raises(NotBrightfieldRgbError, match="photometric YCBCR"):
        open_slide(path)


@pytest.mark.parametrize(
    ("pixels", "photometric", "planar"),
    [
        (np.zeros((90, 120), np.uint8), "minisblack", None),
        (np.zeros((90, 120, 4), np.uint8), "rgb", None),
        (np.zeros((90, 120, 4), np.uint8), "separated", None),
        (np.zeros((90, 120, 3), np.uint16), "rgb", None),
        (np.zeros((90, 120, 3), np.float32), "rgb", None),
        (np.zeros((90, 120, 3), np.int8), "rgb", None),
        (np.zeros((90, 120, 3), np.uint8), "cielab", None),
        (np.zeros((3, 90, 120), np.uint16), "rgb", "separate"),
    ],
    ids=["grey", "alpha", "cmyk", "16 bit", "float", "signed", "lab", "16 bit planes"],
)
def test_what_is_not_eight_bit_rgb_is_refused(tmp_path, pixels, photometric, planar):
    path = tmp_path / "a.tiff"
    tifffile.imwrite(path, pixels, photometric=photometric, tile=(64, 64), planarconfig=planar)

    with pytest.raises(NotBrightfieldRgbError, match=r"^a\.tiff: "):
        open_slide(path)


@pytest.mark.parametrize("orientation", [2, 3, 4, 5, 6, 7, 8])
def test_a_turned_or_mirrored_image_is_refused(tmp_path, orientation):
    tag = (274, 3, 1, orientation, True)
    path = write_pyramid(tmp_path / "a.tiff", [sample_image(150, 110)], tile_px=64, compression="lzw", extratags=[tag])

    with pytest.raises(UnreadableError, match=f"orientation.*{orientation}"):
        open_slide(path)


def test_smaller_pages_of_another_kind_are_no_levels(tmp_path):
    finest = sample_image(1024, 600)
    path = tmp_path / "a.tiff"
    with tifffile.TiffWriter(path) as tiff:
        for pixels, photometric, planar in (
            (finest, "rgb", None),
            (finest[::2, ::2], "cielab", None),
            (np.moveaxis(finest[::2, ::2], -1, 0).astype(np.uint16), "rgb", "separate"),
            (finest[::4, ::8], "rgb", None),
            (finest[::4, ::4], "rgb", None),
        ):
            tiff.write(
                np.ascontiguousarray(pixels), photometric=photometric, planarconfig=planar, tile=(64, 64),
                compression="lzw", metadata=None,
            )  # fmt: skip

    with open_slide(path) as slide:
        assert [(level.width_px, level.downsample) for level in slide.info.levels] == [(1024, 1.0), (256, 4.0)]
        np.testing.assert_array_equal(slide.read_region(1, Box(0, 0, 256, 150)), finest[::4, ::4])


@pytest.mark.parametrize("size", [(2003, 50), (50, 2003)])
def test_levels_of_long_and_tall_slides_are_recognised(tmp_path, size):
    path = write_jpeg_pyramid(tmp_path / "a.tiff", halved(sample_image(*size), 3), tile_px=64)

    with open_slide(path) as slide:
        assert len(slide.info.levels) == 4


def test_a_refused_file_is_closed_again(tmp_path):
    tifffile.imwrite(tmp_path / "a.tiff", np.zeros((90, 120), np.uint8), tile=(64, 64))
    (tmp_path / "b.tiff").write_bytes(b"II*\0" + b"\xff" * 40)
    before = len(os.listdir("/proc/self/fd"))

    for name in ("a.tiff", "b.tiff"):
        with pytest.raises((NotBrightfieldRgbError, UnreadableError)):
            open_slide(tmp_path / name)

    assert len(os.listdir("/proc/self/fd")) == before
