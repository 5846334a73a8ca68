"""Merging of overlapping tiles into one map: each cell is the weighted mean of the tiles that cover it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.grid import TileGrid


def merge_tiles(values_cyx: NDArray[np.float32], grid: TileGrid) -> NDArray[np.float32]:
    """Merge tiles that are longer than their stride into cells of one stride.

    A tile is weighted by a raised cosine, which peaks in its middle and is 0 at its edges, where a network sees too
    little context. A cell's weight within a tile is the cosine's integral over the cell, in each direction.

    Args:
        values_cyx: float32 (classes, rows, columns) of the grid's tiles, NaN where one was not predicted.

    Returns:
        (classes, cell rows, cell columns), NaN where there is no predicted tile; all cells that tiles cover fully.
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
    """Spread each tile's value over the cells that it covers."""
    rows, columns = values_yx.shape
    reach = len(weights) - 1
    along_y = np.zeros((rows + reach, columns))
    for offset, weight in enumerate(weights):
        along_y[offset : offset + rows] += weight * values_yx
    spread_yx = np.zeros((rows + reach, columns + reach))
    for offset, weight in enumerate(weights):
        spread_yx[:, offset : offset + columns] += weight * along_y
    return spread_yx
