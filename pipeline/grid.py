"""A regular grid of tiles over a slide at a fixed physical resolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.foundation.errors import BadRecipeError

FINER_THAN_SCAN = 0.99
"""A tile may have pixels at most 1 % finer than those scanned."""


class CoarseSlideError(BadRecipeError):
    """A slide was scanned more coarsely than requested: an error of this slide, not of finer ones."""


@dataclass(frozen=True)
class TileGrid:
    """Tiles whose corners lie on a grid that starts at (0, 0).

    Tiles that would cross the right or bottom edge are left out.
    """

    columns: int
    rows: int
    side_px0: int
    stride_px0: int
    tile_px: int
    mpp: float

    @property
    def corners_xy0(self) -> NDArray[np.int64]:
        """Top-left corners in level-0 pixels, int64 of shape (rows·columns, 2), row by row."""
        xs = np.arange(self.columns, dtype=np.int64) * self.stride_px0
        ys = np.arange(self.rows, dtype=np.int64) * self.stride_px0
        return np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)


def tile_grid(
    size_wh_px0: tuple[int, int],
    mpp0: float,
    *,
    tile_px: int,
    mpp: float,
    overlap_px: int = 0,
    fixed_by: str | None = None,
) -> TileGrid:
    """Lay a grid over a slide; a tile covers tile_px · mpp microns whatever the scanner.

    Args:
        size_wh_px0: slide size in level-0 pixels.
        tile_px: side of the finished tile, at `mpp`.
        overlap_px: pixels shared by neighbours, at `mpp`.
        fixed_by: owner of an `mpp` that cannot be changed, such as "model m-1"; for the message.

    Raises:
        CoarseSlideError: the slide was scanned more coarsely than `mpp`.
        BadRecipeError: the overlap is not smaller than the tile.
    """
    if mpp < mpp0 * FINER_THAN_SCAN:
        remedy = (
            f"The slide is coarser than {fixed_by} needs: use a model trained on tiles of {mpp0:g} µm/px or more."
            if fixed_by
            else f"Ask for {mpp0:g} µm/px or more: `--tile-mpp`, or `mpp` in the [tile] section of gemslide.toml."
        )
        raise CoarseSlideError(
            f"tiles at {mpp:g} µm/px from a slide scanned at {mpp0:g} µm/px would invent detail. {remedy}"
        )
    if overlap_px >= tile_px:
        raise BadRecipeError(f"overlap_px = {overlap_px} must be smaller than tile_px = {tile_px}.")
    side_px0 = round(tile_px * mpp / mpp0)
    stride_px0 = round((tile_px - overlap_px) * mpp / mpp0)
    columns, rows = (max(0, (size - side_px0) // stride_px0 + 1) if size >= side_px0 else 0 for size in size_wh_px0)
    return TileGrid(columns, rows, side_px0, stride_px0, tile_px, mpp)


def tissue_fraction(
    corners_xy0: NDArray[np.int64], side_px0: int, mask_yx: NDArray[np.uint8], cell_px0: float
) -> NDArray[np.float32]:
    """Share of each tile that the tissue mask covers, float32 of shape (tiles,).

    Cells are counted exactly where a tile cuts them, by bilinear sampling of the mask's integral.

    Args:
        cell_px0: side of a mask cell in level-0 pixels.
    """
    covered = _sums_over(corners_xy0, side_px0, mask_yx.astype(np.float64), cell_px0)
    return np.clip(covered / (side_px0 / cell_px0) ** 2, 0, 1).astype(np.float32)


def mean_over(
    corners_xy0: NDArray[np.int64], side_px0: int, values_yx: NDArray[np.float32], cell_px0: float
) -> NDArray[np.float32]:
    """Mean of a map's cells under each tile, weighted by the share of each that it covers, float32 of shape (tiles,).

    NaN cells are ignored; a tile over nothing else is NaN.

    Args:
        cell_px0: side of a cell of the map in level-0 pixels.
    """
    known = np.isfinite(values_yx)
    sums = _sums_over(corners_xy0, side_px0, np.where(known, values_yx, 0).astype(np.float64), cell_px0)
    counts = _sums_over(corners_xy0, side_px0, known.astype(np.float64), cell_px0)
    return np.where(counts > 1e-9, sums / np.maximum(counts, 1e-9), np.nan).astype(np.float32)


def _sums_over(
    corners_xy0: NDArray[np.int64], side_px0: int, values_yx: NDArray[np.float64], cell_px0: float
) -> NDArray[np.float64]:
    """Sum of a map under each tile, in cells."""
    integral = np.zeros((values_yx.shape[0] + 1, values_yx.shape[1] + 1))
    integral[1:, 1:] = values_yx.cumsum(0).cumsum(1)
    left_top = corners_xy0 / cell_px0
    right_bottom = (corners_xy0 + side_px0) / cell_px0
    return np.asarray(
        _sample(integral, right_bottom[:, 0], right_bottom[:, 1])
        - _sample(integral, left_top[:, 0], right_bottom[:, 1])
        - _sample(integral, right_bottom[:, 0], left_top[:, 1])
        + _sample(integral, left_top[:, 0], left_top[:, 1])
    )


def _sample(table: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.clip(x, 0, table.shape[1] - 1)
    y = np.clip(y, 0, table.shape[0] - 1)
    x0, y0 = np.minimum(x.astype(int), table.shape[1] - 2), np.minimum(y.astype(int), table.shape[0] - 2)
    fx, fy = x - x0, y - y0
    top = table[y0, x0] * (1 - fx) + table[y0, x0 + 1] * fx
    bottom = table[y0 + 1, x0] * (1 - fx) + table[y0 + 1, x0 + 1] * fx
    return np.asarray(top * (1 - fy) + bottom * fy)
