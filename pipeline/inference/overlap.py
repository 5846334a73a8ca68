"""Overlapping tiles into one map: each cell is the weighted mean of the tiles that cover it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.grid import TileGrid


def merge_tiles(values_cyx: NDArray[np.float32], grid: TileGrid) -> NDArray[np.float32]:
    """Cells of one stride, from tiles that begin at every stride and are longer.

    A tile counts most in its middle, by a raised cosine that is 0 at its edges: there a network sees too little around
    the tissue. A cell's weight within a tile is the cosine's integral over the cell, in each direction.

    Args:
        values_cyx: float32 (classes, rows, columns) of the grid's tiles, NaN where one was not predicted.

    Returns:
        (classes, cell rows, cell columns), NaN where no predicted tile lies; all cells that tiles cover wholly.
    """
    weights = cell_weights(grid.side_px0, grid.stride_px0)
    known_yx = np.isfinite(values_cyx[0])
    total_yx = _spread(known_yx.astype(np.float64), weights)
    sums_cyx = np.stack([_spread(np.where(known_yx, values, 0).astype(np.float64), weights) for values in values_cyx])
    rows, columns = (
        ((count - 1) * grid.stride_px0 + grid.side_px0) // grid.stride_px0 for count in (grid.rows, grid.columns)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        merged_cyx = np.where(total_yx > 1e-12, sums_cyx / total_yx, np.nan)
    return merged_cyx[:, :rows, :columns].astype(np.float32)


def cell_weights(side_px0: int, stride_px0: int) -> NDArray[np.float64]:
    """Weight of each cell along a tile, adding up to 1: the integral of 1 - cos(2πt) over the cell's part of it."""
    borders = np.minimum(np.arange(math.ceil(side_px0 / stride_px0) + 1) * stride_px0 / side_px0, 1.0)
    return np.diff(borders - np.sin(2 * np.pi * borders) / (2 * np.pi))


def _spread(values_yx: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each tile's value onto the cells that it covers."""
    rows, columns = values_yx.shape
    reach = len(weights) - 1
    along_y = np.zeros((rows + reach, columns))
    for offset, weight in enumerate(weights):
        along_y[offset : offset + rows] += weight * values_yx
    spread_yx = np.zeros((rows + reach, columns + reach))
    for offset, weight in enumerate(weights):
        spread_yx[:, offset : offset + columns] += weight * along_y
    return spread_yx
