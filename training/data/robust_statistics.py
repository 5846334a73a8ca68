"""Median and spread of tile measurements, kept in a model package to notice slides unlike its training set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TO_SIGMA = 2.563
"""Width of a normal distribution between its 10th and 90th percentile, in standard deviations."""

Numbers = NDArray[np.float64]


def median_and_spread(values_nk: Numbers) -> tuple[Numbers, Numbers]:
    """The median of each column, and the distance from its 10th to its 90th percentile over 2.563, rounded to 4 places.

    For normally distributed values the spread is the standard deviation. The median absolute deviation would not do: if
    a little more than half of the tiles are one tissue, the median lies within it, and the deviation is close to zero.

    Args:
        values_nk: (tiles, numbers), at least one tile.
    """
    low, median, high = np.quantile(values_nk, (0.1, 0.5, 0.9), axis=0)
    return np.round(median, 4), np.round((high - low) / TO_SIGMA, 4)
