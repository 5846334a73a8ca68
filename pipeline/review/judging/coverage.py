"""Viewing coverage of a slide: per cell of its plane, the finest magnification and the duration. Pure arithmetic.

A viewing is the part of the slide that a screen showed while it did not move. A cell is in view if its centre is inside
the field around the middle of the screen (`SeenRule`) and on the screen, and so is the cell at its middle. It has been
seen at the viewing's magnification once the view has rested for as long as the rule states.
frontend/src/review/coverage_map.ts does the same.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.review.judging.seen_rule import UM_PER_PX_AT_1X, SeenRule
from training.foundation.errors import BadRecipeError, UnreadableError

CELL_UM = 128.0
MAX_CELLS = 250_000
"""Of one grid; on larger slides the cell width is doubled until they fit."""
TICKS_PER_S = 4
_CODE_AT_1X, _CODES_PER_OCTAVE = 100, 12
_MAX_TICKS = 2**16 - 1
_MAX_RULE_BYTES = 1000


@dataclass(frozen=True)
class Viewing:
    """A part of the slide on the screen.

    Attributes:
        corners_xy0: the screen's four corners in level-0 pixels, in order around it.
        um_per_px: µm along a screen pixel (docs/decisions/0009-seen.md).
        seconds: duration of this viewing.
        rested_s: how long the view had rested by its end, with what earlier viewings of the same rest have reported.
    """

    corners_xy0: tuple[tuple[float, float], ...]
    um_per_px: float
    seconds: float
    rested_s: float


@dataclass(frozen=True)
class CoverageGrid:
    """Grid of cells; cell (0, 0) begins at the slide's top left corner."""

    cell_um: float
    columns: int
    rows: int

    @property
    def cells(self) -> int:
        return self.columns * self.rows


@dataclass(frozen=True)
class Coverage:
    """Viewing coverage of a slide.

    Attributes:
        rule: by which cells count as seen.
        finest_yx: uint8 (rows, columns); 0: never seen, else `code_of` the finest magnification.
        ticks_yx: uint16 (rows, columns), quarters of a second in view; saturated at four and a half hours.
        seconds: how long the slide was open in a visible tab.
    """

    grid: CoverageGrid
    rule: SeenRule
    finest_yx: NDArray[np.uint8]
    ticks_yx: NDArray[np.uint16]
    seconds: float = 0.0

    @classmethod
    def empty(cls, grid: CoverageGrid, rule: SeenRule, seconds: float = 0.0) -> Coverage:
        shape = (grid.rows, grid.columns)
        return cls(grid, rule, np.zeros(shape, np.uint8), np.zeros(shape, np.uint16), seconds)

    def add_viewings(self, viewings: Sequence[Viewing], *, mpp0: float, seconds: float) -> Coverage:
        """The same with more viewings.

        Args:
            mpp0: the scanned resolution: a screen that enlarges its pixels shows nothing finer.
            seconds: how long the slide was open meanwhile.
        """
        finest, ticks = self.finest_yx.copy(), self.ticks_yx.astype(np.uint32)
        for viewing in viewings:
            inside = _in_view(viewing, self.grid, self.rule, mpp0)
            if viewing.rested_s >= self.rule.seconds:
                finest[inside] = np.maximum(finest[inside], code_of(max(viewing.um_per_px, mpp0)))
            ticks[inside] += round(viewing.seconds * TICKS_PER_S)
        full = np.minimum(ticks, _MAX_TICKS).astype(np.uint16)
        return Coverage(self.grid, self.rule, finest, full, self.seconds + seconds)

    def share_seen(self, tissue_yx: NDArray[np.bool_], magnification: float | None = None) -> float | None:
        """Share of the tissue's cells seen at a magnification (the rule's, if None) or a higher one; None without
        tissue.

        Args:
            tissue_yx: bool (rows, columns) of the same grid.
        """
        cells = int(tissue_yx.sum())
        seen = self.finest_yx >= code_of(UM_PER_PX_AT_1X / (magnification or self.rule.magnification))
        return float((seen & tissue_yx).sum()) / cells if cells else None


def code_of(um_per_px: float) -> int:
    """A magnification as one byte: 1 to 255, a twelfth of a doubling each; 100 is 1x."""
    octaves = math.log2(UM_PER_PX_AT_1X / um_per_px)
    return min(255, max(1, math.floor(_CODE_AT_1X + _CODES_PER_OCTAVE * octaves + 0.5)))


def grid_for(size_wh_px0: tuple[int, int], mpp0: float) -> CoverageGrid:
    """The grid of a slide. A remainder of less than half a cell at its edge belongs to the previous cell: every centre
    is on the slide, so that each cell can be viewed."""
    cell_um = CELL_UM
    while True:
        columns, rows = (max(1, math.floor(side_px0 * mpp0 / cell_um + 0.5)) for side_px0 in size_wh_px0)
        if columns * rows <= MAX_CELLS:
            return CoverageGrid(cell_um, columns, rows)
        cell_um *= 2


def tissue_cells(grid: CoverageGrid, mask_yx: NDArray[np.uint8], mask_um: float) -> NDArray[np.bool_]:
    """Cells with any tissue in them: bool (rows, columns).

    Args:
        mask_yx: 1 = tissue.
        mask_um: µm along a cell of the mask.
    """
    has_tissue = np.zeros((grid.rows, grid.columns), bool)
    rows, columns = np.nonzero(mask_yx)
    scale = mask_um / grid.cell_um
    at_rows = np.minimum(((rows + 0.5) * scale).astype(np.int64), grid.rows - 1)
    at_columns = np.minimum(((columns + 0.5) * scale).astype(np.int64), grid.columns - 1)
    has_tissue[at_rows, at_columns] = True
    return has_tissue


def packed(values: NDArray[np.uint8] | NDArray[np.uint16]) -> bytes:
    """A grid as stored: little-endian, row by row, a zlib stream."""
    return zlib.compress(values.astype(values.dtype.newbyteorder("<")).tobytes(), 6)


def unpacked(stored: bytes, grid: CoverageGrid, dtype: str) -> NDArray[np.generic]:
    """A stored grid. Raises UnreadableError: it is damaged, or of another size."""
    size = grid.cells * np.dtype(dtype).itemsize
    try:
        content = zlib.decompressobj().decompress(stored, size + 1)
    except zlib.error as error:
        raise UnreadableError(f"the stored coverage is damaged: {error}.") from error
    if len(content) != size:
        raise UnreadableError(f"the stored coverage is damaged: {len(content)} bytes, {size} expected.")
    return np.frombuffer(content, dtype).reshape(grid.rows, grid.columns).copy()


def packed_seen(seen: Coverage) -> bytes:
    """The finest magnifications as stored: the rule as a line of JSON, then the grid."""
    return seen.rule.model_dump_json().encode() + b"\n" + packed(seen.finest_yx)


def unpacked_seen(stored: bytes, grid: CoverageGrid) -> tuple[SeenRule, NDArray[np.uint8]] | None:
    """The rule and the finest magnifications; None if they were stored before there was a rule, when every cell on the
    screen counted. Raises UnreadableError: as `unpacked`."""
    if not stored.startswith(b"{"):
        return None
    rule, _, values = stored.partition(b"\n")
    try:
        stated = SeenRule.model_validate_json(rule[:_MAX_RULE_BYTES])
    except ValueError as error:
        raise UnreadableError("the stored coverage is damaged: its rule cannot be read.") from error
    return stated, unpacked(values, grid, "<u1").astype(np.uint8)


def check_viewing(viewing: Viewing) -> Viewing:
    """Return the viewing. Raises BadRecipeError: it is invalid."""
    numbers = [number for corner in viewing.corners_xy0 for number in corner]
    is_valid = (
        len(viewing.corners_xy0) == 4
        and all(math.isfinite(number) and abs(number) < 1e9 for number in numbers)
        and 0 < viewing.um_per_px < 1e5
        and 0 <= viewing.seconds < 3600
        and viewing.seconds <= viewing.rested_s < 1e6
    )
    if not is_valid:
        raise BadRecipeError(
            "invalid viewing: four corners, µm along a screen pixel, seconds (below 3600) and the time that the view "
            "has rested (at least these seconds) are expected."
        )
    return viewing


def _in_view(
    viewing: Viewing, grid: CoverageGrid, rule: SeenRule, mpp0: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the cells within the field of a viewing."""
    corners = np.array(viewing.corners_xy0) * (mpp0 / grid.cell_um)
    centre, radius = corners.mean(0), rule.field_px * viewing.um_per_px / 2 / grid.cell_um
    low = np.clip(np.floor(np.maximum(corners.min(0), centre - radius)), 0, (grid.columns, grid.rows)).astype(int)
    high = np.clip(np.ceil(np.minimum(corners.max(0), centre + radius)), 0, (grid.columns, grid.rows)).astype(int)
    rows, columns = np.mgrid[low[1] : high[1], low[0] : high[0]]
    x, y = columns + 0.5, rows + 0.5
    sides = []
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, 0), strict=True):
        sides.append((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) >= 0)
    is_on_screen = np.logical_and.reduce(sides) | ~np.logical_or.reduce(sides)  # whichever way round the corners go
    inside = is_on_screen & ((x - centre[0]) ** 2 + (y - centre[1]) ** 2 <= radius**2)
    found_rows, found_columns = rows[inside], columns[inside]
    middle = np.floor(centre).astype(int)
    is_on_slide = 0 <= middle[0] < grid.columns and 0 <= middle[1] < grid.rows
    if is_on_slide and not ((found_rows == middle[1]) & (found_columns == middle[0])).any():
        found_rows, found_columns = np.append(found_rows, middle[1]), np.append(found_columns, middle[0])
    return found_rows, found_columns
