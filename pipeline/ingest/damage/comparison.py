"""Damage that decodes: a tile that shows something other than the levels next to its own.

A reduced level is a copy of the one before. Means over cells of `CELL_PX` of its pixels are compared with means over
the same place in the finer level. Where they differ, one of the two is wrong; a third level shows which, or else both
count as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.slides.common.tile_places import Position

CELL_PX = 16
"""Side of a compared cell in pixels of the coarser level; less than any tile, and enough to average out filters."""
MAX_DIFFERENCE = 24
"""Difference of two means, of 255, from which one is wrong. See docs/how_to/damaged_slides.md for whole slides."""
_MAX_DRIFT_PX = CELL_PX / 4
"""How far a ratio that is not a whole number may shift the far end of the coarser level."""

Cells = NDArray[np.bool_]


@dataclass(frozen=True)
class LevelMeans:
    """Means of one level over square cells, and the tiles for which they are known."""

    tile_px: int
    cell_px: int
    """0 if tiles do not divide into cells."""
    size_wh_px: tuple[int, int]
    means: NDArray[np.uint8]
    """(rows · n, columns · n, 3) for n cells along a tile."""
    is_known: Cells
    """(rows, columns) of tiles."""


@dataclass(frozen=True)
class _Comparison:
    """A level compared with the next one, in cells of the next one."""

    difference: NDArray[np.int16]
    is_known: Cells

    @property
    def is_off(self) -> Cells:
        return self.is_known & (self.difference > MAX_DIFFERENCE)


def unlike_tiles(levels: Sequence[LevelMeans], downsamples: Sequence[float]) -> list[set[Position]]:
    """Tiles of each level that differ from the levels next to it.

    Args:
        downsamples: of the levels, finest first.
    """
    pairs = list(zip(levels, levels[1:], downsamples, downsamples[1:], strict=False))
    compared = [_compare(*pair) for pair in pairs]
    ratios = [round(coarse / fine) for _, _, fine, coarse in pairs]
    unlike: list[set[Position]] = [set() for _ in levels]
    for index, comparison in enumerate(compared):
        if comparison is None or not comparison.is_off.any():
            continue
        finer, coarser = _blamed(compared, ratios, index)
        unlike[index] |= _covered_tiles(finer, CELL_PX * ratios[index], levels[index].tile_px)
        unlike[index + 1] |= _covered_tiles(coarser, CELL_PX, levels[index + 1].tile_px)
    return unlike


def _compare(fine: LevelMeans, coarse: LevelMeans, fine_step: float, coarse_step: float) -> _Comparison | None:
    """The difference of two levels; None if they cannot be overlaid."""
    ratio = round(coarse_step / fine_step)
    drift_px = abs(coarse_step / fine_step / max(1, ratio) - 1) * max(coarse.size_wh_px)
    if ratio < 2 or not fine.cell_px or not coarse.cell_px or drift_px > _MAX_DRIFT_PX:
        return None
    if (CELL_PX * ratio) % fine.cell_px or coarse.cell_px != CELL_PX:
        return None
    rows, columns = (
        min(of_fine // (CELL_PX * ratio), of_coarse // CELL_PX)  # whole cells only: beyond the slide nothing is equal
        for of_fine, of_coarse in zip(fine.size_wh_px[::-1], coarse.size_wh_px[::-1], strict=True)
    )
    if not rows or not columns:
        return None
    per_cell = CELL_PX * ratio // fine.cell_px
    means = fine.means[: rows * per_cell, : columns * per_cell]
    expected = cv2.resize(means, (columns, rows), interpolation=cv2.INTER_AREA).astype(np.int16)
    difference = np.abs(expected - coarse.means[:rows, :columns]).max(-1)
    known = _per_cell(fine, rows * per_cell, columns * per_cell).reshape(rows, per_cell, columns, per_cell).all((1, 3))
    return _Comparison(difference, known & _per_cell(coarse, rows, columns))


def _per_cell(level: LevelMeans, rows: int, columns: int) -> Cells:
    n = level.tile_px // level.cell_px
    return level.is_known.repeat(n, 0).repeat(n, 1)[:rows, :columns]


def _blamed(compared: Sequence[_Comparison | None], ratios: Sequence[int], index: int) -> tuple[Cells, Cells]:
    """Cells of a pair where the finer, and where the coarser level is considered wrong.

    A level that also differs from its other neighbour is the wrong one; one that equals its other neighbour is right.
    Without such evidence, or with evidence for both, both are wrong: better one tile too many masked than one too few.
    """
    pair = compared[index]
    assert pair is not None
    shape = pair.is_known.shape
    finer_off, finer_right = _against_previous(compared[index - 1] if index else None, ratios[index], shape)
    after = compared[index + 1] if index + 1 < len(compared) else None
    coarser_off, coarser_right = _against_next(after, ratios[index + 1] if after else 1, shape)
    finer_innocent = finer_right | (coarser_off & ~finer_off)
    coarser_innocent = coarser_right | (finer_off & ~coarser_off)
    return pair.is_off & ~(finer_innocent & ~coarser_innocent), pair.is_off & ~(coarser_innocent & ~finer_innocent)


def _against_previous(before: _Comparison | None, ratio: int, shape: tuple[int, ...]) -> tuple[Cells, Cells]:
    """Whether the finer level differs from, or equals, the one before it; in cells that are `ratio` times as large."""
    off, right = np.zeros(shape, bool), np.zeros(shape, bool)
    if before is not None:
        rows, columns = min(shape[0], len(before.is_known) // ratio), min(shape[1], before.is_known.shape[1] // ratio)
        blocks = (slice(rows * ratio), slice(columns * ratio))
        parts = (rows, ratio, columns, ratio)
        is_off, known = before.is_off[blocks].reshape(parts), before.is_known[blocks].reshape(parts)
        off[:rows, :columns] = is_off.any((1, 3))
        right[:rows, :columns] = known.all((1, 3)) & ~is_off.any((1, 3))
    return off, right


def _against_next(after: _Comparison | None, ratio: int, shape: tuple[int, ...]) -> tuple[Cells, Cells]:
    """Whether the coarser level differs from, or equals, the next; in cells of which `ratio`² make one of those.

    One wrong cell moves the mean of the larger one by a `ratio`²-th of its difference: only less than that is equal.
    """
    off, right = np.zeros(shape, bool), np.zeros(shape, bool)
    if after is not None:
        is_right = after.is_known & (after.difference < MAX_DIFFERENCE / ratio**2)
        for target, source in ((off, after.is_off), (right, is_right)):
            large = source.repeat(ratio, 0).repeat(ratio, 1)[: shape[0], : shape[1]]
            target[: large.shape[0], : large.shape[1]] = large
    return off, right


def _covered_tiles(cells: Cells, cell_px: int, tile_px: int) -> set[Position]:
    """The tiles that cells reach into."""
    tiles: set[Position] = set()
    for row, column in np.argwhere(cells).tolist():
        top, left = row * cell_px // tile_px, column * cell_px // tile_px
        bottom, right = -(-(row + 1) * cell_px // tile_px), -(-(column + 1) * cell_px // tile_px)
        tiles |= {(r, c) for r in range(top, bottom) for c in range(left, right)}
    return tiles
