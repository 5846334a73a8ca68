"""Whether a smaller image shows the same as a larger one of its proportions: a level does, a label page does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError

ReadRegion = Callable[[Box], Pixels]

ANOTHER_IMAGE = "an image of the slide's proportions shows something else and is left out as a level"
"""Warning about it."""
_SIDE_PX, _CELL_PX, _CELLS = 256, 8, 8
"""Largest side of a compared area and of a cell in it, in pixels of the smaller image; cells along a part of it, which
is compared by itself: the shape of the tissue on the glass is alike on many slides."""
_MAX_FINE_PX, _MIN_SIDE_PX, _MAX_DOWNSAMPLE = 1024, 16, 256
"""An area is shrunk, down to the second, so that it spans at most the first in the larger image. An image so much
smaller that even this would be too much is no level: levels follow in small steps, and a missing one is built."""
_MAX_AREAS = 4
"""Areas of one place."""
_MIN_DETAIL = 5
"""Of 255, for the deviation of cell means: less is noise, or glass."""
_MAX_DIFFERENCE = 24
"""Of 255, for the mean of areas without detail: more than filters, resampling and compression change."""
_NOISE = 12
"""Of 255, for the mean difference of cells: what sampled noise may differ by, whose cells do not correlate."""
_MIN_LIKENESS = 0.7
"""For the median correlation: levels have over 0.9, also sharpened ones, and different images about 0."""


def shows_another_image(
    coarse: ReadRegion,
    coarse_wh_px: tuple[int, int],
    fine: ReadRegion,
    fine_wh_px: tuple[int, int],
    places: Iterable[Box],
) -> bool:
    """Whether the two differ at most of the places where either shows something, or cannot be compared for their sizes.

    Areas that cannot be decoded are skipped, and so are areas that are empty in both.

    Args:
        places: where to look, in pixels of the smaller image.
    """
    scale_xy = fine_wh_px[0] / coarse_wh_px[0], fine_wh_px[1] / coarse_wh_px[1]
    if max(scale_xy) > _MAX_DOWNSAMPLE:
        return True
    side_px = max(_MIN_SIDE_PX, min(_SIDE_PX, int(_MAX_FINE_PX / max(scale_xy))))
    areas = dict.fromkeys(area for place in places for area in _areas(place, side_px, coarse_wh_px))
    known = [value for area in areas for value in _likenesses(coarse, fine, area, scale_xy, side_px)]
    return bool(known) and float(np.median(known)) < _MIN_LIKENESS


def places_of_grid(width_px: int, height_px: int, across: int = 2) -> list[Box]:
    """An image cut into as many places along each side."""
    xs, ys = (np.linspace(0, side_px, across + 1).astype(int).tolist() for side_px in (width_px, height_px))
    return [
        Box(left, top, right - left, bottom - top)
        for top, bottom in pairwise(ys)
        for left, right in pairwise(xs)
        if right > left and bottom > top
    ]


def _areas(place: Box, side_px: int, image_wh_px: tuple[int, int]) -> list[Box]:
    """Squares that cover a place within the image: all, or some of them at equal distances."""
    width_px, height_px = min(side_px, image_wh_px[0]), min(side_px, image_wh_px[1])
    xs = [min(x, image_wh_px[0] - width_px) for x in range(place.x_px, place.right_px, side_px)]
    ys = [min(y, image_wh_px[1] - height_px) for y in range(place.y_px, place.bottom_px, side_px)]
    areas = [Box(x, y, width_px, height_px) for y in ys for x in xs]
    return [areas[i] for i in np.linspace(0, len(areas) - 1, min(len(areas), _MAX_AREAS)).astype(int).tolist()]


def _likenesses(
    coarse: ReadRegion, fine: ReadRegion, area: Box, scale_xy: tuple[float, float], side_px: int
) -> list[float]:
    """Correlations of an area's parts in the two; none if it cannot be decoded."""
    left, top = round(area.x_px * scale_xy[0]), round(area.y_px * scale_xy[1])
    right, bottom = round(area.right_px * scale_xy[0]), round(area.bottom_px * scale_xy[1])
    try:
        own, other = coarse(area), fine(Box(left, top, max(1, right - left), max(1, bottom - top)))
    except CorruptTileError:
        return []
    cell_px = max(1, min(_CELL_PX, side_px // _CELLS))
    cells = max(1, area.width_px // cell_px), max(1, area.height_px // cell_px)
    first, second = _means(own, cells), _means(other, cells)
    parts = [
        (slice(row, row + _CELLS), slice(column, column + _CELLS))
        for row in range(0, max(1, cells[1] - _CELLS // 2), _CELLS)
        for column in range(0, max(1, cells[0] - _CELLS // 2), _CELLS)
    ]
    return [value for part in parts if (value := _likeness(first[part], second[part])) is not None]


def _likeness(first: NDArray[np.float32], second: NDArray[np.float32]) -> float | None:
    """Correlation of two grids of colours; None if both are empty and of one colour."""
    pairs = [(first.mean(-1), second.mean(-1)), (first[..., 0], second[..., 0])]  # the second, if one holds Y, Cb, Cr
    if max(float(values.std()) for pair in pairs for values in pair) >= _MIN_DETAIL:
        is_close = float(np.abs(first - second).mean()) <= _NOISE
        return 1.0 if is_close else max(_correlation(*pair) for pair in pairs)
    is_off = float(np.abs(first.mean((0, 1)) - second.mean((0, 1))).max()) > _MAX_DIFFERENCE
    return 0.0 if is_off else None


def _means(pixels: Pixels, cells_wh: tuple[int, int]) -> NDArray[np.float32]:
    means = cv2.resize(pixels, cells_wh, interpolation=cv2.INTER_AREA)
    return np.asarray(means, dtype=np.float32).reshape(cells_wh[1], cells_wh[0], 3)


def _correlation(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Correlation of two grids of values; 0 if either is flat."""
    a, b = (values.ravel() - values.mean() for values in (first, second))
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 1e-6 else 0.0
