"""Stores to export, made once: every codec, 240 px tiles, edge tiles, sparse tiles, a stored label."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.box import Box
from tests.pipeline.export.make_store import j2k_level, jfif, jpeg_level, make_store, rgb_jpeg, zstd_level
from tests.pipeline.make import halved, sample_image


@pytest.fixture(scope="session")
def label():
    return sample_image(150, 90, seed=9)


@pytest.fixture(scope="session")
def mixed_store(tmp_path_factory, label):
    """Three levels: Aperio-like RGB tiles of 240 px, YCbCr 4:2:0 tiles of 256 px, lossless chunks of 100 px."""
    pixels = sample_image(1330, 970)
    # What is left out is glass on every level.
    for y, x, side_px in ((0, 0, 240), (240, 480, 240), (960, 1200, 240), (512, 512, 512), (0, 400, 400)):
        pixels[y : y + side_px, x : x + side_px] = 255
    first, second, third = halved(pixels, 2)
    levels = [
        jpeg_level(first, 240, rgb_jpeg, sparse={(0, 0), (1, 2), (4, 5)}),
        jpeg_level(second, 256, jfif("420"), sparse={(1, 1)}),
        zstd_level(third, 100, sparse={(0, 1)}),
    ]
    return make_store(tmp_path_factory.mktemp("mixed") / "slides/M-1.ome.zarr", levels, label=label)


@pytest.fixture(scope="session")
def j2k_store(tmp_path_factory):
    """Two levels of lossless JPEG 2000 in 240 px tiles."""
    first, second = halved(sample_image(700, 500, seed=3), 1)
    levels = [j2k_level(first, 240, sparse={(1, 0)}), j2k_level(second, 240)]
    return make_store(tmp_path_factory.mktemp("j2k") / "slides/J-1.ome.zarr", levels)


def planes(reader, level) -> np.ndarray:
    """Pixels of a level by our own reader, c,y,x."""
    array = reader.levels[level]
    pixels = reader.read_region(level, Box(0, 0, array.width_px, array.height_px))
    return np.ascontiguousarray(np.moveaxis(pixels, -1, 0))
