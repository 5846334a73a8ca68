"""Where a level's data are absent, in the cells in which it is searched for damage."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError
from pipeline.ingest.damage.found import grid_px
from pipeline.ingest.damage.reduced import tile_box
from pipeline.slides.common.absent import WHITE, AbsentTiles, absent_tiles
from pipeline.slides.common.slide import Slide
from pipeline.store.reading.threads import CORES, parallel_for

_BLOCK_BYTES = 2048
"""So many zeros in a row are no stain, but a block that was never written: disks have blocks of 4096 bytes."""
_MIN_PIXELS = 64
"""Fewer pixels at an edge may be black by chance."""


@dataclass(frozen=True)
class Gaps:
    """Cells of one level, and those of them without data of their own."""

    cell_px: int
    is_absent: NDArray[np.bool_]
    """(rows, columns) of cells."""
    is_by_format: NDArray[np.bool_]
    """Of the same shape: absent cells that the format defines as background."""


def gaps_of(slide: Slide, level: int, else_px: int) -> Gaps:
    """Find the absent cells of a level. Levels stored uncompressed are read for it; others are not.

    Args:
        else_px: side of a cell where tiles are not square.
    """
    size, cell_px = slide.info.levels[level], grid_px(slide, level, else_px)
    shape = -(-size.height_px // cell_px), -(-size.width_px // cell_px)
    gaps = Gaps(cell_px, np.zeros(shape, bool), np.zeros(shape, bool))
    absent = absent_tiles(slide, level)
    if absent is not None:
        _add_listed(gaps, absent)
        if absent.blanks:
            _add_blank(gaps, slide, level, absent.blanks)
    return gaps


def _add_listed(gaps: Gaps, absent: AbsentTiles) -> None:
    """Add the cells that absent tiles reach into."""
    width_px, height_px = absent.tile_wh_px
    rows, columns = gaps.is_absent.shape
    outside = Box(0, 0, columns * gaps.cell_px, rows * gaps.cell_px)
    for row, column in np.argwhere(absent.is_absent).tolist():
        box = Box(column * width_px, row * height_px, width_px, height_px).overlap(outside)
        for at in itertools.product(*box.cells(gaps.cell_px)):
            is_first = not gaps.is_absent[at]
            gaps.is_by_format[at] = absent.is_by_format[row, column] and (is_first or gaps.is_by_format[at])
            gaps.is_absent[at] = True


def _add_blank(gaps: Gaps, slide: Slide, level: int, blanks: frozenset[int]) -> None:
    """Add the cells whose pixels show that nothing was ever written there."""

    def look(row: int, column: int) -> None:
        try:
            pixels = slide.read_region(level, tile_box(slide.info, level, gaps.cell_px, row, column))
        except CorruptTileError:  # damage of another kind, which is found elsewhere
            return
        value = next((value for value in blanks if _is_blank(pixels, value)), None)
        if value is not None:
            gaps.is_absent[row, column], gaps.is_by_format[row, column] = True, value == WHITE

    parallel_for(look, map(tuple, np.argwhere(~gaps.is_absent).tolist()), CORES)


def _is_blank(pixels: Pixels, value: int) -> bool:
    if value:
        return bool((pixels == value).all())
    if pixels.shape[0] * pixels.shape[1] < _MIN_PIXELS:
        return False
    if not pixels.any(axis=(0, 1)).all():  # all of it, or a whole colour plane
        return True
    stored = np.ascontiguousarray(pixels).reshape(-1)
    blocks = stored[: len(stored) // _BLOCK_BYTES * _BLOCK_BYTES].reshape(-1, _BLOCK_BYTES)
    return not blocks.any(axis=1).all()
