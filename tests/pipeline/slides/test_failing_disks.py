"""A failing disk or network share is reported as such: not as a damaged file, nor in the system's wording."""

from __future__ import annotations

import errno
import os

import pytest
import tifffile
import zarr

from pipeline.box import Box
from pipeline.slides.common.reading import read_at
from pipeline.slides.registry import open_slide
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid
from tests.pipeline.slides import make_dicom
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ome_zarr import write_ome_zarr
from training.foundation.errors import UnreadableError

LEVELS = halved(sample_image(300, 200), 1)
WRITERS = {
    "tiff": lambda folder: write_jpeg_pyramid(folder / "a.tiff", LEVELS, tile_px=64),
    "dicom": lambda folder: write_dicom(folder / "a.dcm", LEVELS[0]),
    "native dicom": lambda folder: write_dicom(
        folder / "a.dcm", LEVELS[0], syntax=make_dicom.NATIVE, encode=make_dicom.native, photometric="RGB"
    ),
    "ome-zarr": lambda folder: write_ome_zarr(folder / "a.zarr", LEVELS),
}
FAILED = r"^a\.\w+: cannot be read .*\(Input/output error\)\. The disk or the network failed"


def break_disk(monkeypatch):
    """Make every further read of a slide's file fail, by position and through the libraries."""

    def fail(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(tifffile.FileHandle, "read", fail)
    monkeypatch.setattr(zarr.storage._local, "_get", fail)


def test_a_read_that_the_kernel_refuses_is_explained():
    descriptor = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        with pytest.raises(UnreadableError, match=r"^a\.svs: cannot be read at byte 0 \(Input/output error\)"):
            read_at(descriptor, 10, 0, "a.svs")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("family", WRITERS)
def test_a_disk_that_fails_between_two_tiles_is_explained(tmp_path, monkeypatch, family):
    with open_slide(WRITERS[family](tmp_path)) as slide:
        slide.read_region(0, Box(0, 0, 64, 64))
        break_disk(monkeypatch)

        with pytest.raises(UnreadableError, match=FAILED):
            slide.read_region(0, Box(128, 64, 64, 64))


@pytest.mark.parametrize("family", ["tiff", "dicom"])
def test_a_disk_that_fails_while_tiles_are_copied_is_explained(tmp_path, monkeypatch, family):
    with open_slide(WRITERS[family](tmp_path)) as slide:
        encoded = slide.encoded_level(0)
        break_disk(monkeypatch)

        with pytest.raises(UnreadableError, match=FAILED):
            encoded.streams(0, range(2))


@pytest.mark.parametrize("family", WRITERS)
def test_a_disk_that_fails_while_a_slide_is_opened_is_explained(tmp_path, monkeypatch, family):
    path = WRITERS[family](tmp_path)
    break_disk(monkeypatch)

    with pytest.raises(UnreadableError, match=FAILED):
        open_slide(path)
