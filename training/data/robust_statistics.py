"""Median and spread of tiles' measurements: what a model package keeps of its training set to notice a far slide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TO_SIGMA = 2.563
"""Width of a normal distribution between its 10th and 90th percentile, in standard deviations."""

Numbers = NDArray[np.float64]


def median_and_spread(values_nk: Numbers) -> tuple[Numbers, Numbers]:
    """The median of each column, and the distance from its 10th to its 90th percentile over 2.563, rounded to 4 places.

    The spread is the standard deviation, were the values normal. It is not the median absolute deviation, which is all
    but zero for a little more than half of one tissue and a little less of another, while the median lies within the
    first.

    Args:
        values_nk: (tiles, numbers), at least one tile.
    """
    low, median, high = np.quantile(values_nk, (0.1, 0.5, 0.9), axis=0)
    return np.round(median, 4), np.round((high - low) / TO_SIGMA, 4)
