"""Area resampling: every pixel of the result is the mean of what it covers, also where it cuts pixels of the source."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def area_mean(pixels: Pixels, left: float, top: float, scale: float, size_wh: tuple[int, int]) -> Pixels:
    """A smaller picture of a rectangle of `pixels`, uint8 (height, width, 3).

    Args:
        left, top: corner of the rectangle in `pixels`; need not be whole.
        scale: pixels of the source per pixel of the result, at least 1.
        size_wh: of the result; the rectangle must lie inside `pixels`.
    """
    width, height = size_wh
    taken_w, taken_h = scale * width, scale * height
    if all(float(value).is_integer() for value in (left, top, taken_w, taken_h)):
        x, y = int(left), int(top)
        source = pixels[y : y + int(taken_h), x : x + int(taken_w)]
        if source.shape[:2] == (height, width):
            return source
        return np.asarray(cv2.resize(source, size_wh, interpolation=cv2.INTER_AREA), np.uint8)
    rows = _means_along_first(pixels.astype(np.float64), top, scale, height)
    means = _means_along_first(rows.swapaxes(0, 1), left, scale, width).swapaxes(0, 1)
    return np.asarray(np.rint(means), np.uint8)


def _means_along_first(values: NDArray[np.float64], start: float, scale: float, count: int) -> NDArray[np.float64]:
    """Means of `count` neighbouring stretches of `scale` along the first axis, by differences of a running sum."""
    edges = start + scale * np.arange(count + 1)
    whole = np.minimum(edges.astype(int), len(values))
    part = (edges - whole)[:, None, None]
    sums = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    at_edges = sums[whole] + part * values[np.minimum(whole, len(values) - 1)]
    return np.asarray(np.diff(at_edges, axis=0) / scale)
