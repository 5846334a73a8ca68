"""Whether a smaller image shows the same as a larger one of its proportions: a level does, a label page does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError

ReadRegion = Callable[[Box], Pixels]

_SIDE_PX, _CELL_PX = 64, 8
"""Side of a compared place and of a cell in it, in pixels of the smaller image."""
_MIN_SIDE_PX, _MAX_FINE_PX = 32, 2048
"""A place is shrunk, down to the first, so that it spans at most the second in the larger image."""
_MAX_DIFFERENCE = 24
"""Of 255, for the median difference of cell means: more than filters, resampling and compression change."""
_MIN_CORRELATION = 0.5
"""Of grey values: an image stored in other colours has the same structure."""


def shows_another_image(
    coarse: ReadRegion,
    coarse_wh_px: tuple[int, int],
    fine: ReadRegion,
    fine_wh_px: tuple[int, int],
    places_xy: Iterable[tuple[int, int]],
) -> bool:
    """Whether the two differ wherever they are compared. Places that cannot be decoded are skipped.

    Args:
        places_xy: where to look, in pixels of the smaller image.
    """  # fmt: skip
    verdicts = [_differ(coarse, coarse_wh_px, fine, fine_wh_px, place) for place in places_xy]
    known = [verdict for verdict in verdicts if verdict is not None]
    return bool(known) and all(known)


def _differ(
    coarse: ReadRegion,
    coarse_wh_px: tuple[int, int],
    fine: ReadRegion,
    fine_wh_px: tuple[int, int],
    place_xy: tuple[int, int],
) -> bool | None:
    """None if it cannot be determined: not decodable, or so much smaller that single pixels would be compared."""
    width_px, height_px = coarse_wh_px
    scale_x, scale_y = fine_wh_px[0] / width_px, fine_wh_px[1] / height_px
    side_px = min(_SIDE_PX, int(_MAX_FINE_PX / max(scale_x, scale_y)))
    if side_px < _MIN_SIDE_PX:
        return None
    side_wh = min(side_px, width_px), min(side_px, height_px)
    x_px, y_px = min(place_xy[0], width_px - side_wh[0]), min(place_xy[1], height_px - side_wh[1])
    left, top = round(x_px * scale_x), round(y_px * scale_y)
    box = Box(left, top, max(1, round(side_wh[0] * scale_x)), max(1, round(side_wh[1] * scale_y)))
    try:
        own, other = coarse(Box(x_px, y_px, *side_wh)), fine(box)
    except CorruptTileError:
        return None
    cells = max(1, side_wh[0] // _CELL_PX), max(1, side_wh[1] // _CELL_PX)
    first, second = _means(own, cells), _means(other, cells)
    is_off = float(np.median(np.abs(first - second).max(-1))) > _MAX_DIFFERENCE
    return is_off and _correlation(first.mean(-1), second.mean(-1)) < _MIN_CORRELATION


def _means(pixels: Pixels, cells_wh: tuple[int, int]) -> NDArray[np.float32]:
    means = cv2.resize(pixels, cells_wh, interpolation=cv2.INTER_AREA)
    return np.asarray(means, dtype=np.float32).reshape(cells_wh[1], cells_wh[0], 3)


def _correlation(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Correlation of two grids of values; 0 if either is flat."""
    a, b = (values.ravel() - values.mean() for values in (first, second))
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 1e-6 else 0.0
