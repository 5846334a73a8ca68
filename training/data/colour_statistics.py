"""The hues a model was trained on, in four numbers: enough to notice a slide with a different stain.

A tile's hue is the direction of its tissue's mean optical density: how much more red is absorbed than blue, and green
than both, each as a share of the total absorption. How dark the tissue is cancels out; which dyes it holds does not.
Haematoxylin with eosin absorbs green most (hue near (0, 0.45)), DAB absorbs blue (near (-0.2, 0)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.data.robust_statistics import median_and_spread

Hues = NDArray[np.float64]
"""(tiles, 2): (red - blue) / sum and (2 green - red - blue) / sum of densities; NaN where a tile has no tissue."""

MIN_DENSITY = 0.15
"""Optical density, of the channel that absorbs most, below which a pixel is glass (Macenko et al., ISBI 2009)."""
_STRIDE_PX = 4
"""Every fourth pixel of every fourth row: the others hardly change the mean."""
_DENSITY = -np.log((np.arange(256) + 1) / 240.0)

LEAST_SPREAD = (0.06, 0.09)
"""Spread assumed for a training set that varies less: H&E differs that much between laboratories and organs."""


@dataclass(frozen=True)
class HueStatistics:
    """Hues of many tiles. Each tuple has one number per component."""

    median: tuple[float, float]
    spread: tuple[float, float]
    """As `median_and_spread` defines it."""
    tiles: int
    """Number of tiles examined that had tissue."""


def tile_hues(tiles_nhwc: NDArray[np.uint8]) -> Hues:
    """The hue of each tile's tissue.

    Args:
        tiles_nhwc: uint8 (tiles, height, width, 3), RGB.
    """
    return np.array([_hue(tile[::_STRIDE_PX, ::_STRIDE_PX].reshape(-1, 3)) for tile in tiles_nhwc]).reshape(-1, 2)


def _hue(pixels_nc: NDArray[np.uint8]) -> Hues:
    density_nc = _DENSITY[pixels_nc]
    tissue_nc = density_nc[density_nc.max(axis=1) > MIN_DENSITY]
    if not len(tissue_nc):
        return np.full(2, np.nan)
    red, green, blue = np.maximum(tissue_nc.mean(axis=0), 0)  # a little below 0 for white
    hue: Hues = np.array([red - blue, 2 * green - red - blue]) / (red + green + blue)
    return hue


def hue_statistics(hues_n2: Hues) -> HueStatistics | None:
    """Median and spread; None where no tile has tissue."""
    known_n2 = hues_n2[~np.isnan(hues_n2).any(axis=1)]
    if not len(known_n2):
        return None
    median, spread = (numbers.tolist() for numbers in median_and_spread(known_n2))
    return HueStatistics((median[0], median[1]), (spread[0], spread[1]), len(known_n2))


def hue_distance(hues_n2: Hues, trained: HueStatistics) -> float | None:
    """Distance of the median hue of tiles from that of the training tiles, in spreads of the latter.

    Returns:
        0 or more; None where no tile has tissue.
    """
    seen = hue_statistics(hues_n2)
    if seen is None:
        return None
    spread = np.maximum(trained.spread, LEAST_SPREAD)
    return round(float(np.linalg.norm(np.subtract(seen.median, trained.median) / spread)), 2)
