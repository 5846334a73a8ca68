"""Regions at any resolution: the mean of the area under each pixel, compared with a slow exact reference."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.store.reading import reader as reader_module
from pipeline.store.reading.reader import StoreReader
from pipeline.store.reading.resample import area_mean
from tests.pipeline.make import MPP0, halved, ingest, sample_image, write_pyramid
from training.foundation.errors import BadRecipeError

WIDTH_PX0, HEIGHT_PX0 = 1300, 902
OUTSIDE_PX = 900
"""Width of the white border around a level in the reference."""


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """Readers of stores of 1, 2 and 4 levels, and of one whose second level is 3.02 times smaller."""
    folder = tmp_path_factory.mktemp("resolutions")
    pixels = sample_image(WIDTH_PX0, HEIGHT_PX0)
    odd = np.ascontiguousarray(pixels[::3, ::3][:298, :430])
    sources = {
        "1": (halved(pixels, 0), "lzw", 1300),
        "2": (halved(pixels, 1), "jpeg", 650),
        "4": (halved(pixels, 1), "jpeg", 163),
        "odd": ([pixels, odd], "jpeg", 430),
    }
    readers_by_name = {}
    for name, (levels, compression, smallest) in sources.items():
        source = write_pyramid(folder / f"{name}.tiff", levels, compression=compression, tile_px=256)
        report = ingest(source, folder, slide_id=name, smallest_level_px=smallest)
        readers_by_name[name] = StoreReader(report.store)
    assert [len(readers_by_name[name].levels) for name in sources] == [1, 2, 4, 2]
    assert 3.02 < readers_by_name["odd"].levels[1].downsample < 3.03
    return readers_by_name


def weights(start: float, scale: float, count: int, length: int) -> np.ndarray:
    """Share of each source pixel in each pixel of the result, float64 (count, length)."""
    low = start + scale * np.arange(count)[:, None]
    covered = np.minimum(low + scale, np.arange(length) + 1) - np.maximum(low, np.arange(length))
    return np.clip(covered, 0, None) / scale


@lru_cache
def level_with_white(reader, level: int) -> np.ndarray:
    size = reader.levels[level]
    pixels = reader.read_region(level, Box(0, 0, size.width_px, size.height_px))
    return np.pad(pixels, ((OUTSIDE_PX,) * 2, (OUTSIDE_PX,) * 2, (0, 0)), constant_values=255)


def exact(reader, level: int, x_px0: float, y_px0: float, width: int, height: int, mpp: float) -> np.ndarray:
    """Region by the definition itself, in float64, on the whole level with a white border."""
    pixels, downsample = level_with_white(reader, level), reader.levels[level].downsample
    scale = mpp / (reader.mpp0 * downsample)
    rows = weights(y_px0 / downsample + OUTSIDE_PX, scale, height, pixels.shape[0])
    columns = weights(x_px0 / downsample + OUTSIDE_PX, scale, width, pixels.shape[1])
    y, x = np.flatnonzero(rows.any(0)), np.flatnonzero(columns.any(0))
    covered = pixels[y[0] : y[-1] + 1, x[0] : x[-1] + 1].astype(np.float64)
    return np.tensordot(rows[:, y], np.tensordot(columns[:, x], covered, (1, 1)), (1, 1))


BOXES = [
    # x_px0, y_px0, width, height
    (0, 0, 40, 30),
    (100, 60, 64, 32),
    (333.3, 211.7, 57, 41),
    (-20.25, -31.5, 50, 45),
    (WIDTH_PX0 - 60.6, HEIGHT_PX0 - 33.3, 70, 40),
    (640.5, -200, 33, 21),
]


@pytest.mark.parametrize("name", ["1", "2", "4", "odd"])
@pytest.mark.parametrize("mpp", [0.55, 0.75, 1.0, 1.37, 2.0, 3.0, 4.7])
@pytest.mark.parametrize("box", BOXES)
def test_every_pixel_is_the_mean_of_what_it_covers(readers, name, mpp, box):
    reader = readers[name]
    level = reader.level_for_downsample(mpp / MPP0)

    region = reader.read_at_mpp(*box, mpp)

    assert (region.dtype, region.shape, region.flags.c_contiguous) == (np.uint8, (box[3], box[2], 3), True)
    assert np.abs(region - exact(reader, level, *box, mpp)).max() <= 0.501


@pytest.mark.parametrize("name", ["1", "2", "4", "odd"])
def test_at_the_resolution_of_a_level_the_pixels_are_the_stored_ones(readers, name):
    reader = readers[name]
    for level in reader.levels:
        mpp = MPP0 * level.downsample
        for x_px, y_px in ((0, 0), (17, 29), (-7, 3), (level.width_px - 50, level.height_px - 20)):
            region = reader.read_at_mpp(x_px * level.downsample, y_px * level.downsample, 61, 37, mpp)

            np.testing.assert_array_equal(region, reader.read_region(level.level, Box(x_px, y_px, 61, 37)))


def test_a_resolution_that_differs_by_rounding_gives_stored_pixels_too(readers):
    """The level is 3.025 times smaller; an image at 3.03 is the level while its last pixel moves by less than half."""
    reader = readers["odd"]
    stored = reader.read_region(1, Box(20, 10, 90, 60))
    corner = 20 * reader.levels[1].downsample, 10 * reader.levels[1].downsample

    np.testing.assert_array_equal(reader.read_at_mpp(*corner, 90, 60, MPP0 * 3.03), stored)


def test_a_pixel_one_percent_finer_than_a_level_does_not_move_the_image(readers):
    reader = readers["4"]
    mpp = 2 * MPP0 * 0.992

    region = reader.read_at_mpp(0, 0, 600, 400, mpp)

    assert reader.level_for_downsample(mpp / MPP0) == 1
    assert np.abs(region - exact(reader, 1, 0, 0, 600, 400, mpp)).max() <= 0.501


def test_finer_than_the_scan_is_refused(readers):
    reader = readers["2"]

    with pytest.raises(BadRecipeError, match="would invent detail"):
        reader.read_at_mpp(0, 0, 10, 10, MPP0 * 0.98)
    assert reader.read_at_mpp(0, 0, 10, 10, MPP0 * 0.995).shape == (10, 10, 3)


def test_far_outside_the_slide_is_white_at_any_resolution(readers):
    for mpp in (0.5, 0.77, 3.0):
        for corner in ((-9000, 0), (90_000.5, 3), (0, 90_000), (5, -7000.25)):
            assert (readers["4"].read_at_mpp(*corner, 12, 9, mpp) == 255).all()


def test_a_image_read_in_bands_is_the_image_read_at_once(readers, monkeypatch):
    whole = readers["1"].read_at_mpp(3.3, 5.1, 470, 340, 1.3)

    monkeypatch.setattr(reader_module, "MAX_TAKEN_PX", 40_000)
    banded = readers["1"].read_at_mpp(3.3, 5.1, 470, 340, 1.3)

    assert np.abs(banded - exact(readers["1"], 0, 3.3, 5.1, 470, 340, 1.3)).max() <= 0.501
    np.testing.assert_array_equal(banded, whole)


def test_threads_give_the_same_image(readers):
    reader = readers["4"]

    for box in BOXES:
        np.testing.assert_array_equal(reader.read_at_mpp(*box, 0.7, threads=4), reader.read_at_mpp(*box, 0.7))


@pytest.mark.parametrize("size_wh", [(0, 0), (0, 5), (5, 0)])
def test_an_empty_image_is_empty(readers, size_wh):
    assert readers["2"].read_at_mpp(10, 10, *size_wh, 0.9).shape == (size_wh[1], size_wh[0], 3)
    assert readers["2"].read_region(0, Box(10, 10, *size_wh)).shape == (size_wh[1], size_wh[0], 3)


def test_area_means_of_one_colour_are_that_colour():
    pixels = np.full((90, 130, 3), 201, np.uint8)

    for scale in (1.0, 1.01, 2.0, 2.5, 7.77):
        assert (area_mean(pixels, 0.3, 0.9, scale, (16, 11)) == 201).all()
