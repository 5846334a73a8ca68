"""Patches join without visible seams, and the same seed gives the same patches."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from skimage import data

from pipeline.demo.quilting import OVERLAP_PX, PATCH_PX, STEP_PX, Source, cheapest_seam, collect_patches, join, quilt

SIZE_PX = 8 * STEP_PX + OVERLAP_PX


@pytest.fixture(scope="module")
def piece():
    """Positive and negative tissue, and its guide: the amount of brown."""
    pixels = np.asarray(data.immunohistochemistry()[:, 256:384], np.uint8)
    brown = np.clip((pixels[..., 0] - pixels[..., 2].astype(np.float32)) / 60, 0, 1)
    return Source(pixels, brown[None])


def laid(piece, seed=0):
    """Square whose left half should be brown."""
    wanted = np.zeros((1, SIZE_PX, SIZE_PX), np.float32)
    wanted[:, :, : SIZE_PX // 2] = 0.7
    needed = np.ones((SIZE_PX, SIZE_PX), bool)
    return quilt(collect_patches([piece]), wanted, needed, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(5))
def test_a_seam_is_the_cheapest_of_all_paths(seed):
    cost = np.random.default_rng(seed).integers(0, 9, (6, 4)).astype(float)
    paths = [p for p in product(range(4), repeat=6) if all(abs(a - b) <= 1 for a, b in pairwise(p))]
    cheapest = min(sum(cost[row, column] for row, column in enumerate(path)) for path in paths)

    seam = cheapest_seam(cost)

    assert tuple(seam) in paths
    assert cost[np.arange(6), seam].sum() == cheapest


def test_a_patch_is_cut_in_where_it_equals_what_was_there():
    old = np.zeros((PATCH_PX, PATCH_PX, 3), np.float32)
    new = np.full((PATCH_PX, PATCH_PX, 3), 90, np.uint8)
    new[:, 10:12] = 0
    filled = np.zeros((PATCH_PX, PATCH_PX), bool)
    filled[:, :OVERLAP_PX] = True

    joined = join(old, filled, new)

    assert (joined[:, :10] == 0).all()
    assert (joined[:, 12:] == 90).all()


def test_the_same_seed_lays_the_same_patches(piece):
    first, again, other = laid(piece), laid(piece), laid(piece, seed=1)

    assert (first == again).all()
    assert (first != other).any()


def test_texture_follows_the_guide(piece):
    pixels = laid(piece).astype(float)
    brown = pixels[..., 0] - pixels[..., 2]

    assert brown[:, : SIZE_PX // 2 - 32].mean() > brown[:, SIZE_PX // 2 + 32 :].mean() + 30


def test_no_pixel_is_black_where_one_is_needed_and_none_is_laid_far_from_there(piece):
    needed = np.zeros((SIZE_PX, SIZE_PX), bool)
    needed[150:200, 90:140] = True

    pixels = quilt(collect_patches([piece]), np.zeros((1, *needed.shape), np.float32), needed, np.random.default_rng(0))

    assert pixels[needed].any(-1).all()
    assert not pixels[: 150 - PATCH_PX].any()
    assert not pixels[:, 140 + PATCH_PX :].any()


def steepness(pixels, at_px):
    """Mean difference of neighbours across some columns and rows, relative to all columns and rows."""
    pixels = pixels.astype(float)
    across_x, across_y = np.abs(np.diff(pixels, axis=1)).mean((0, 2)), np.abs(np.diff(pixels, axis=0)).mean((1, 2))
    return (across_x[at_px].mean() / across_x.mean() + across_y[at_px].mean() / across_y.mean()) / 2


def test_nothing_is_steeper_across_the_borders_of_patches_than_elsewhere(piece):
    pixels = laid(piece)
    starts = np.arange(STEP_PX, SIZE_PX - OVERLAP_PX, STEP_PX)
    squares = np.random.default_rng(0).integers(0, 64, (len(starts) + 1, len(starts) + 1, 2))
    collage = np.vstack(
        [np.hstack([piece.pixels[y : y + STEP_PX, x : x + STEP_PX] for y, x in row]) for row in squares]
    )

    # Differences are indexed by their left or upper pixel: patches start after it, and overlap up to OVERLAP_PX.
    assert steepness(pixels, starts - 1) < 1.1
    assert steepness(pixels, starts + OVERLAP_PX - 1) < 1.1
    assert steepness(collage, starts - 1) > 1.3
