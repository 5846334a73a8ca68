"""Whether a smaller image shows the same as a larger one of its proportions, in the same colours.

A level does. A label page does not, nor does a level that was written with red and blue exchanged, or decoded as
another colour space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError

ReadRegion = Callable[[Box], Pixels]
"""Reads a region; called by several threads."""

ANOTHER_IMAGE = (
    "an image of the slide's proportions shows something else, or the same in other colours, and is left out as a level"
)
"""Warning about it."""
_SIDE_PX, _CELL_PX, _CELLS = 256, 8, 8
"""Largest side of a compared area and of a cell in it, in pixels of the smaller image; cells along a part of it, which
is compared by itself: the shape of the tissue on the glass is alike on many slides."""
_MAX_FINE_PX, _MIN_SIDE_PX, _MAX_DOWNSAMPLE = 1024, 16, 256
"""An area is shrunk, down to the second, so that it spans at most the first in the larger image. An image so much
smaller that even this would be too much is no level: levels follow in small steps, and a missing one is built."""
_MAX_AREAS = 4
"""Areas of one place."""
_THREADS = 2
"""About half of the work is decoding, which releases Python's lock."""
_MIN_CELLS = 16
"""In a part whose structure and colours are compared: with fewer, a shift by a pixel looks like a change of colour, and
two cells always correlate."""
_DETAILED_TILES = 8
"""The most detailed tile in each of so many parts of an image is a place to compare."""
_MIN_DETAIL = 5
"""Of 255, for the deviation of cell means: less is noise, or glass."""
_MAX_DIFFERENCE = 24
"""Of 255, for the mean of areas without detail, or of few cells: more than filters, resampling and compression
change."""
_SAME_STRUCTURE = 0.85
"""For the correlation of a part: it shows the same in both, so that its colours can be compared."""
_MAX_COLOUR_CHANGE = 12
"""Of 255, for the mean of cells: real levels have less than 2."""
_MAX_UNEXPLAINED = 0.5
"""Of the change."""
_NOISE = 12
"""Of 255, for the mean difference of cells: what sampled noise may differ by, whose cells do not correlate."""
_MIN_LIKENESS = 0.5
"""For the median correlation: levels have over 0.9, also sharpened ones, and different images about 0."""


_FEW: ContextVar[bool] = ContextVar("few places are compared", default=False)
_NUM_FEW = 3
"""Areas, if few are compared; up to five, as they are taken at equal distances."""


@contextmanager
def few_places() -> Iterator[None]:
    """Within the block, images are compared at a few places, in a tenth of the time: enough to notice most labels.

    Other checks of many tiles may be as brief (`are_few_compared`). For a slide that is opened again, and compared
    thoroughly, before anything relies on it.
    """
    token = _FEW.set(True)
    try:
        yield
    finally:
        _FEW.reset(token)


def are_few_compared() -> bool:
    """Whether this is within `few_places`."""
    return _FEW.get()


def shows_another_image(
    coarse: ReadRegion,
    coarse_wh_px: tuple[int, int],
    fine: ReadRegion,
    fine_wh_px: tuple[int, int],
    places: Iterable[Box],
) -> bool | None:
    """Whether the two differ, in structure or colours, at most of the places where either shows something, or cannot be
    compared for their sizes. None if no place tells.

    Areas that cannot be decoded are skipped, and so are areas that are empty in both.

    Args:
        places: where to look, in pixels of the smaller image.
    """
    scale_xy = fine_wh_px[0] / coarse_wh_px[0], fine_wh_px[1] / coarse_wh_px[1]
    if max(scale_xy) > _MAX_DOWNSAMPLE:
        return True
    side_px = max(_MIN_SIDE_PX, min(_SIDE_PX, int(_MAX_FINE_PX / max(scale_xy))))
    areas = list(dict.fromkeys(area for place in places for area in _areas(place, side_px, coarse_wh_px)))
    if _FEW.get():
        areas = areas[:: max(1, len(areas) // _NUM_FEW)]
    with ThreadPoolExecutor(_THREADS) as pool:
        of_areas = pool.map(lambda area: _compared_parts(coarse, fine, area, scale_xy, side_px), areas)
        parts = [part for of_area in of_areas for part in of_area]
    known = sorted(part.likeness for part in parts if part.likeness is not None)
    if not known:
        return None
    median = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2  # np.median would import masked arrays first
    return median < _MIN_LIKENESS or _differ_in_colour(parts)


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


def _compared_parts(
    coarse: ReadRegion, fine: ReadRegion, area: Box, scale_xy: tuple[float, float], side_px: int
) -> list[_Part]:
    """An area's parts in the two; none if it cannot be decoded."""
    left, top = round(area.x_px * scale_xy[0]), round(area.y_px * scale_xy[1])
    right, bottom = round(area.right_px * scale_xy[0]), round(area.bottom_px * scale_xy[1])
    try:
        own, other = coarse(area), fine(Box(left, top, max(1, right - left), max(1, bottom - top)))
    except CorruptTileError:
        return []
    cell_px = max(1, min(_CELL_PX, side_px // _CELLS))
    cells = max(1, area.width_px // cell_px), max(1, area.height_px // cell_px)
    first, second = cell_means(own, cells), cell_means(other, cells)
    parts = [
        (slice(row, row + _CELLS), slice(column, column + _CELLS))
        for row in range(0, max(1, cells[1] - _CELLS // 2), _CELLS)
        for column in range(0, max(1, cells[0] - _CELLS // 2), _CELLS)
    ]
    return [_Part.of(first[part], second[part]) for part in parts]


@dataclass(frozen=True)
class _Part:
    """The same cells in both images."""

    coarse: NDArray[np.float32]
    fine: NDArray[np.float32]
    """Their mean colours, float32 (rows, columns, 3)."""
    has_detail: bool
    likeness: float | None
    """Correlation of the two; None if both are empty and of one colour."""

    @classmethod
    def of(cls, coarse: NDArray[np.float32], fine: NDArray[np.float32]) -> _Part:
        has_detail = _has_detail(coarse, fine)
        likeness = _correlated(coarse, fine) if has_detail else _differing(coarse, fine)
        return cls(coarse, fine, has_detail, likeness)


def _correlated(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    if float(np.abs(first - second).mean()) <= _NOISE:
        return 1.0
    return max(_correlation(*pair) for pair in zip(_structure(first), _structure(second), strict=True))


def _differing(first: NDArray[np.float32], second: NDArray[np.float32]) -> float | None:
    """0 if two grids without detail are of different colours; else None."""
    is_off = float(np.abs(first.mean((0, 1)) - second.mean((0, 1))).max()) > _MAX_DIFFERENCE
    return 0.0 if is_off else None


def _has_detail(first: NDArray[np.float32], second: NDArray[np.float32]) -> bool:
    if first[..., 0].size < _MIN_CELLS:
        return False
    return max(float(values.std()) for grid in (first, second) for values in _structure(grid)) >= _MIN_DETAIL


def _structure(colours: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Brightness; and red, which varies where only the hue does."""
    return colours.mean(-1), colours[..., 0]


def _differ_in_colour(parts: Sequence[_Part]) -> bool:
    """Whether where both show the same, one affine map turns the colours of one into those of the other, and changes
    them. Noise, filters, small shifts and damaged tiles are no such map."""
    alike = [part for part in parts if part.has_detail and (part.likeness or 0.0) >= _SAME_STRUCTURE]
    if not alike:
        return False
    coarse = np.concatenate([part.coarse.reshape(-1, 3) for part in alike])
    fine = np.concatenate([part.fine.reshape(-1, 3) for part in alike])
    terms = np.column_stack([fine, np.ones(len(fine), np.float32)])
    mapped = terms @ np.linalg.lstsq(terms, coarse, rcond=None)[0]
    change, unexplained = (float(np.abs(coarse - other).max(-1).mean()) for other in (fine, mapped))
    return change > _MAX_COLOUR_CHANGE and unexplained < _MAX_UNEXPLAINED * change


def cell_means(pixels: Pixels, cells_wh: tuple[int, int]) -> NDArray[np.float32]:
    """Mean colours of an image cut into so many cells across and down, float32 (rows, columns, 3)."""
    means = cv2.resize(np.ascontiguousarray(pixels), cells_wh, interpolation=cv2.INTER_AREA)
    return np.asarray(means, dtype=np.float32).reshape(cells_wh[1], cells_wh[0], 3)


def _correlation(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Correlation of two grids of values; 0 if either is flat."""
    a, b = (values.ravel() - values.mean() for values in (first, second))
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 1e-6 else 0.0


def detailed_places(
    byte_counts: NDArray[np.float64],
    columns: int,
    tile_wh_px: tuple[int, int],
    image_wh_px: tuple[int, int],
    scale_xy: tuple[float, float] = (1, 1),
) -> list[Box]:
    """The tiles with the most bytes, which hold the most detail, in pixels of an image of another scale.

    Args:
        byte_counts: of all tiles, row by row.
        columns: tiles in a row.
    """
    (tile_w, tile_h), (width_px, height_px) = tile_wh_px, image_wh_px
    parts = (part for part in np.array_split(np.arange(len(byte_counts)), _DETAILED_TILES) if len(part))
    places = []
    for index in (int(part[byte_counts[part].argmax()]) for part in parts):
        x, y = index % columns * tile_w, index // columns * tile_h
        left, top = int(x * scale_xy[0]), int(y * scale_xy[1])
        right, bottom = min(x + tile_w, width_px) * scale_xy[0], min(y + tile_h, height_px) * scale_xy[1]
        places.append(Box(left, top, max(1, round(right) - left), max(1, round(bottom) - top)))
    return places
