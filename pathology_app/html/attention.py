"""Attention of slide-level models as people read it: the range of its colours, its values as text, what it is not."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.store.layers.attention import Attention

UNIT = "× average"
NOTE = "Attention: share of a tile in the result, 1 = average. No outline of disease. Research use only."
PALETTE = "Cividis"
"""Perceptually uniform, and not that of probabilities."""
MIN_LIMIT = 2.0
"""Even attention must not be stretched until it looks like a finding."""
_PERCENTILE = 99


def colour_limit(times_average_yx: NDArray[np.float16]) -> float:
    """Value at the end of the colour range: the 99th percentile, rounded up to one decimal; at least `MIN_LIMIT`."""
    known = times_average_yx[np.isfinite(times_average_yx)].astype(np.float64)
    highest = float(np.percentile(known, _PERCENTILE)) if known.size else 0.0
    return max(MIN_LIMIT, math.ceil(round(highest * 10, 6)) / 10)


def attention_at(attention: Attention, x_px0: float, y_px0: float) -> float | None:
    """Attention at a level-0 position; None where there is no tile."""
    rows, columns = attention.times_average_yx.shape
    row, column = math.floor(y_px0 / attention.stride_px0), math.floor(x_px0 / attention.stride_px0)
    if not (0 <= row < rows and 0 <= column < columns):
        return None
    value = float(attention.times_average_yx[row, column])
    return None if math.isnan(value) else value


def attention_text(value: float | None) -> str:
    """The value at a point: "2.4 × average"."""
    return "no tile" if value is None else f"{value:.1f} {UNIT}"
