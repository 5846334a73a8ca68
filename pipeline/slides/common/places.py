"""Places of an image at which its levels are best compared: its most detailed tiles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box

_TILES = 8
"""The most detailed tile in each of so many parts of an image."""


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
    parts = (part for part in np.array_split(np.arange(len(byte_counts)), _TILES) if len(part))
    places = []
    for index in (int(part[byte_counts[part].argmax()]) for part in parts):
        x, y = index % columns * tile_w, index // columns * tile_h
        left, top = int(x * scale_xy[0]), int(y * scale_xy[1])
        right, bottom = min(x + tile_w, width_px) * scale_xy[0], min(y + tile_h, height_px) * scale_xy[1]
        places.append(Box(left, top, max(1, round(right) - left), max(1, round(bottom) - top)))
    return places
