"""Sharpness of the tiles that a model was trained on, in two numbers: enough to notice a slide out of focus.

A tile's focus is the logarithm of the variance of its tissue's Laplacian: Pech-Pacheco et al., ICPR 2000, as compared
in Pertuz et al., Pattern Recognition 46 (2013), 1415. It is computed from the luminance at the model's own µm/px, so
that slides of different scanners are measured on the same scale. At 0.5 µm/px, in-focus H&E of four laboratories has
medians from 7.6 to 8.3; a Gaussian blur of one pixel lowers them by 2 to 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from training.data.robust_statistics import median_and_spread

Focus = NDArray[np.float64]
"""(tiles,): ln of a variance in grey levels squared; NaN where a tile has no tissue."""

_GLASS_GREY = 205
"""A pixel whose darkest channel is brighter is glass: optical density 0.15 over a white of 240, as for hues."""
_MOST_PX = 512
"""Only the middle of a larger tile is examined: the rest would take time and add little."""
_LEAST_TISSUE_PX = 16
_NEIGHBOURS = np.ones((3, 3), np.uint8)
"""Pixels from which a pixel's Laplacian is computed."""
_LEAST_VARIANCE = 0.01
"""In grey levels squared, far below the noise of any camera: keeps the logarithm of a painted area finite."""

LEAST_SPREAD = 0.5
"""Spread assumed for a training set that varies less: in-focus slides of several laboratories and organs do."""


@dataclass(frozen=True)
class FocusStatistics:
    """Sharpness of many tiles."""

    median: float
    spread: float
    """As `median_and_spread` defines it."""
    tiles: int
    """Number of tiles examined that had tissue."""


def tile_focus(tiles_nhwc: NDArray[np.uint8]) -> Focus:
    """The sharpness of the tissue in the middle of each tile.

    Args:
        tiles_nhwc: uint8 (tiles, height, width, 3), RGB.
    """
    return np.array([_focus(tile) for tile in tiles_nhwc], np.float64)


def _focus(whole_hwc: NDArray[np.uint8]) -> float:
    top, left = (max(0, side_px - _MOST_PX) // 2 for side_px in whole_hwc.shape[:2])
    tile_hwc = np.ascontiguousarray(whole_hwc[top : top + _MOST_PX, left : left + _MOST_PX])
    red, green, blue = cv2.split(tile_hwc)
    darkest = cv2.min(cv2.min(red, green), blue)
    _, tissue = cv2.threshold(darkest, _GLASS_GREY, 255, cv2.THRESH_BINARY_INV)
    tissue = cv2.erode(tissue, _NEIGHBOURS)  # the edge of the tissue says nothing about focus
    if cv2.countNonZero(tissue) < _LEAST_TISSUE_PX:
        return float("nan")
    grey = cv2.cvtColor(tile_hwc, cv2.COLOR_RGB2GRAY)
    _, deviation = cv2.meanStdDev(cv2.Laplacian(grey, cv2.CV_16S), mask=tissue)
    return float(np.log(max(deviation[0, 0] ** 2, _LEAST_VARIANCE)))


def focus_statistics(focus_n: Focus) -> FocusStatistics | None:
    """Median and spread; None where no tile has tissue."""
    known = focus_n[~np.isnan(focus_n)]
    if not len(known):
        return None
    (median,), (spread,) = (numbers.tolist() for numbers in median_and_spread(known[:, None]))
    return FocusStatistics(median, spread, len(known))


def focus_distance(focus_n: Focus, trained: FocusStatistics) -> float | None:
    """Distance of the median sharpness of tiles from that of the training tiles, in spreads of the latter.

    Returns:
        0 or more; None where no tile has tissue.
    """
    seen = focus_statistics(focus_n)
    if seen is None:
        return None
    return round(abs(seen.median - trained.median) / max(trained.spread, LEAST_SPREAD), 2)
