"""Damage that still decodes is found by comparing levels, and intact slides never look damaged."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from benchmarks.damaged_tiles import SLIDES, differences, reduced, sample
from pipeline.ingest.damage.comparison import CELL_PX, MAX_DIFFERENCE, LevelMeans, unlike_tiles

TILE_PX = 64
SIDES_PX = (1024, 768)
"""Width and height of level 0."""


def smooth(width_px, height_px):
    """Colours that vary slowly enough for any filter to give nearly the same."""
    y, x = np.mgrid[:height_px, :width_px]
    return np.stack([127 + 60 * np.sin(x / 90), 127 + 60 * np.sin(y / 70), 255 * x / width_px], -1).astype(np.uint8)


def levels(*downsamples, damage=()):
    """Means of a slide's levels.

    Args:
        damage: (level, row, column) of tiles that show black.
    """
    means_by_level = []
    for number, step in enumerate(downsamples):
        pixels = cv2.resize(smooth(*SIDES_PX), (SIDES_PX[0] // step, SIDES_PX[1] // step), interpolation=cv2.INTER_AREA)
        for level, row, column in damage:
            if level == number:
                pixels[row * TILE_PX : (row + 1) * TILE_PX, column * TILE_PX : (column + 1) * TILE_PX] = 0
        rows, columns = -(-pixels.shape[0] // TILE_PX), -(-pixels.shape[1] // TILE_PX)
        full = np.pad(pixels, ((0, rows * TILE_PX - pixels.shape[0]), (0, columns * TILE_PX - pixels.shape[1]), (0, 0)))
        means = cv2.resize(full, (columns * 4, rows * 4), interpolation=cv2.INTER_AREA)
        size_wh_px = pixels.shape[1], pixels.shape[0]
        means_by_level.append(LevelMeans(TILE_PX, CELL_PX, size_wh_px, means, np.ones((rows, columns), bool)))
    return means_by_level


@pytest.mark.parametrize("downsamples", [(1, 2, 4, 8), (1, 4), (1, 4, 16), (1, 2), (1,)])
def test_nothing_of_a_whole_slide_is_unlike(downsamples):
    assert unlike_tiles(levels(*downsamples), downsamples) == [set()] * len(downsamples)


@pytest.mark.parametrize("damage", [(0, 5, 9), (1, 2, 4), (2, 1, 1)])
def test_of_three_levels_two_outvote_the_third(damage):
    steps = (1, 2, 4)

    unlike = unlike_tiles(levels(*steps, damage=[damage]), steps)

    level, *tile = damage
    assert unlike == [{tuple(tile)} if number == level else set() for number in range(3)]


def test_of_two_levels_that_differ_neither_is_trusted():
    unlike = unlike_tiles(levels(1, 4, damage=[(0, 5, 9)]), (1, 4))

    assert unlike == [{(5, 9)}, {(1, 2)}]


def test_at_a_wide_step_a_coarser_agreement_proves_nothing_and_both_are_distrusted():
    """A cell of level 2 covers 16 of level 1, whose mean hardly changes."""
    unlike = unlike_tiles(levels(1, 4, 16, damage=[(0, 5, 9)]), (1, 4, 16))

    assert (5, 9) in unlike[0]


def test_tiles_that_the_scanner_left_out_are_no_damage():
    finest, coarse = levels(1, 2, damage=[(0, 5, 9)])
    finest.is_known[5, 9] = False

    assert unlike_tiles([finest, coarse], (1, 2)) == [set(), set()]


def test_levels_that_cannot_be_laid_on_each_other_are_not_compared():
    finest, coarse = levels(1, 2, damage=[(0, 5, 9)])

    assert unlike_tiles([finest, coarse], (1, 2.1)) == [set(), set()]


@pytest.mark.data
@pytest.mark.parametrize("ratio", [2, 4, 16])
@pytest.mark.parametrize("way", ["nearest", "shifted by a pixel", "sharpened"])
def test_no_usual_way_of_making_a_reduced_level_looks_like_damage(real_slides, ratio, way):
    """Scanners differ here; benchmarks/damaged_tiles.py has more ways and whole slides."""
    for name in SLIDES[1:]:
        pixels = sample(real_slides / name, 2048)
        assert differences(pixels, reduced(pixels, ratio, way), ratio).max() <= MAX_DIFFERENCE, name
