"""Area resampling: every pixel of the result is the mean of what it covers, even where it cuts pixels of the source."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels

_BAND_PX = 2**20
"""Pixels of the source processed at a time: their sums, as float64, take 25 MB."""

_ROUNDS = 0.5 + 1e-6
"""Halves round up, even where sums in another order are slightly below: a pixel is the same in any region."""


def area_mean(pixels: Pixels, left: float, top: float, scale: float, size_wh: tuple[int, int]) -> Pixels:
    """A rectangle of `pixels`, resampled: uint8 (height, width, 3).

    Args:
        left, top: corner of the rectangle in `pixels`; need not be whole.
        scale: pixels of the source per pixel of the result.
        size_wh: of the result; the rectangle must lie inside `pixels`.
    """
    width, height = size_wh
    if not (width and height):
        return np.empty((height, width, 3), np.uint8)
    taken_w, taken_h = scale * width, scale * height
    if all(float(value).is_integer() for value in (left, top, taken_w, taken_h)):
        x, y = int(left), int(top)
        source = pixels[y : y + int(taken_h), x : x + int(taken_w)]
        if source.shape[:2] == (height, width):
            return source
        return np.asarray(cv2.resize(source, size_wh, interpolation=cv2.INTER_AREA), np.uint8)
    result = np.empty((height, width, 3), np.uint8)
    edges_x = left + scale * np.arange(width + 1)
    band = max(1, int(_BAND_PX / (pixels.shape[1] * scale)))
    for row in range(0, height, band):
        edges_y = top + scale * np.arange(row, min(row + band, height) + 1)
        sums = _sums(pixels, edges_y, edges_x)
        result[row : row + band] = sums / scale**2 + _ROUNDS
    return result


def _sums(pixels: Pixels, edges_y: NDArray[Any], edges_x: NDArray[Any]) -> NDArray[np.float64]:
    """Sums over the cells of a grid, float64 (rows, columns, 3).

    The sum of all pixels left of and above a point, known at the pixels' corners, is bilinear between them, so its
    differences between any edges are exact.
    """
    first, last = int(edges_y[0]), min(int(np.ceil(edges_y[-1])), len(pixels))
    sums = np.asarray(cv2.integral(np.ascontiguousarray(pixels[first:last]), sdepth=cv2.CV_64F), np.float64)
    rows = np.diff(_between(sums, edges_y - first), axis=0)
    return np.asarray(np.diff(_between(rows.swapaxes(0, 1), edges_x), axis=0).swapaxes(0, 1))


def _between(sums: NDArray[np.float64], at: NDArray[Any]) -> NDArray[np.float64]:
    """Values along the first axis, interpolated between whole positions."""
    whole = np.clip(at.astype(int), 0, len(sums) - 2)
    part = (at - whole)[:, None, None]
    return np.asarray(sums[whole] * (1 - part) + sums[whole + 1] * part, np.float64)
