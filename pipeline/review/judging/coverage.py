"""Viewing coverage of a slide: per cell of its plane, the finest magnification and the duration. Pure arithmetic.

A viewing is the part of the slide that a screen showed for a while. A cell counts as viewed if its centre was on the
screen, and so does the cell at the middle of the screen.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.foundation.errors import BadRecipeError, UnreadableError

CELL_UM = 128.0
MAX_CELLS = 250_000
"""Of one grid; on larger slides the cell width is doubled until they fit."""
TICKS_PER_S = 4
UM_PER_PX_AT_1X = 10.0
"""By convention, a screen pixel is 1 µm wide at 10x."""
_CODE_AT_1X, _CODES_PER_OCTAVE = 100, 12
_MAX_TICKS = 2**16 - 1


@dataclass(frozen=True)
class Viewing:
    """A part of the slide on the screen.

    Attributes:
        corners_xy0: the screen's four corners in level-0 pixels, in order around it.
        um_per_px: µm along a screen pixel.
    """

    corners_xy0: tuple[tuple[float, float], ...]
    um_per_px: float
    seconds: float


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
        finest_yx: uint8 (rows, columns); 0: never on the screen, else `code_of` the finest magnification.
        ticks_yx: uint16 (rows, columns), quarters of a second on the screen; saturated at four and a half hours.
        seconds: how long the slide was open in a visible tab.
    """

    grid: CoverageGrid
    finest_yx: NDArray[np.uint8]
    ticks_yx: NDArray[np.uint16]
    seconds: float = 0.0

    @classmethod
    def empty(cls, grid: CoverageGrid) -> Coverage:
        shape = (grid.rows, grid.columns)
        return cls(grid, np.zeros(shape, np.uint8), np.zeros(shape, np.uint16))

    def add_viewings(self, viewings: Sequence[Viewing], *, mpp0: float, seconds: float) -> Coverage:
        """The same with more viewings.

        Args:
            mpp0: the scanned resolution: a screen that enlarges its pixels shows nothing finer.
            seconds: how long the slide was open meanwhile.
        """
        finest, ticks = self.finest_yx.copy(), self.ticks_yx.astype(np.uint32)
        for viewing in viewings:
            inside = _inside(viewing, self.grid, mpp0)
            finest[inside] = np.maximum(finest[inside], code_of(max(viewing.um_per_px, mpp0)))
            ticks[inside] += round(viewing.seconds * TICKS_PER_S)
        full = np.minimum(ticks, _MAX_TICKS).astype(np.uint16)
        return Coverage(self.grid, finest, full, self.seconds + seconds)

    def share_seen(self, tissue_yx: NDArray[np.bool_], magnification: float) -> float | None:
        """Share of the tissue's cells that were on the screen at a magnification or a higher one; None without tissue.

        Args:
            tissue_yx: bool (rows, columns) of the same grid.
        """
        cells = int(tissue_yx.sum())
        seen = self.finest_yx >= code_of(UM_PER_PX_AT_1X / magnification)
        return float((seen & tissue_yx).sum()) / cells if cells else None


def code_of(um_per_px: float) -> int:
    """A magnification as one byte: 1 to 255, a twelfth of a doubling each; 100 is 1x.
    frontend/src/review/coverage_map.ts does the same."""
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


def check_viewing(viewing: Viewing) -> Viewing:
    """Return the viewing. Raises BadRecipeError: it is invalid."""
    numbers = [number for corner in viewing.corners_xy0 for number in corner]
    is_valid = (
        len(viewing.corners_xy0) == 4
        and all(math.isfinite(number) and abs(number) < 1e9 for number in numbers)
        and 0 < viewing.um_per_px < 1e5
        and 0 <= viewing.seconds < 3600
    )
    if not is_valid:
        raise BadRecipeError("invalid viewing: four corners, µm along a screen pixel and seconds are expected.")
    return viewing


def _inside(viewing: Viewing, grid: CoverageGrid, mpp0: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the cells that a viewing showed."""
    corners = np.array(viewing.corners_xy0) * (mpp0 / grid.cell_um)
    low = np.clip(np.floor(corners.min(0)), 0, (grid.columns, grid.rows)).astype(int)
    high = np.clip(np.ceil(corners.max(0)), 0, (grid.columns, grid.rows)).astype(int)
    rows, columns = np.mgrid[low[1] : high[1], low[0] : high[0]]
    x, y = columns + 0.5, rows + 0.5
    sides = []
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, 0), strict=True):
        sides.append((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) >= 0)
    inside = np.logical_and.reduce(sides) | ~np.logical_or.reduce(sides)  # whichever way round the corners go
    found_rows, found_columns = rows[inside], columns[inside]
    middle = np.floor(corners.mean(0)).astype(int)
    is_on_slide = 0 <= middle[0] < grid.columns and 0 <= middle[1] < grid.rows
    if is_on_slide and not ((found_rows == middle[1]) & (found_columns == middle[0])).any():
        found_rows, found_columns = np.append(found_rows, middle[1]), np.append(found_columns, middle[0])
    return found_rows, found_columns
