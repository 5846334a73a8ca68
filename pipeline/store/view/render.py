"""Thumbnails, colours for the screen, and stripes where a slide is damaged."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.images import encode_jpeg
from pipeline.codecs.types import Pixels
from pipeline.store.layers.damaged import damaged_cells, read_damaged
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.colour import to_srgb
from training.foundation.errors import UnreadableError

MAX_OVERVIEW_PX = 2**32
DAMAGED_COLOUR = "#d6006c"
_DAMAGED_RGBA = (*bytes.fromhex(DAMAGED_COLOUR[1:]), 0xFF)
_STRIPE_PX = 10
"""From one stripe to the next."""


def for_screen(reader: StoreReader, pixels: Pixels) -> Pixels:
    """Pixels of a slide as sRGB: by the scanner's colour profile, if the store has one.

    Raises:
        UnreadableError: the profile cannot be used.
    """
    return to_srgb(reader.icc)(pixels) if reader.icc else pixels


def thumbnail(reader: StoreReader, max_side_px: int) -> Pixels:
    """The whole slide in an image of at most `max_side_px`, colours for the screen.

    Raises:
        UnreadableError: no level is small enough to be read whole; as `for_screen`.
        CorruptTileError: a chunk is damaged.
    """
    width_px0, height_px0 = reader.size_wh_px0
    shrink = max(width_px0, height_px0) / max_side_px
    array = reader.levels[reader.level_for_downsample(shrink)]
    if array.width_px * array.height_px > MAX_OVERVIEW_PX:
        raise UnreadableError(
            f"{reader.path}: its level for an overview has {array.width_px} × {array.height_px} px, too many to read. "
            "Ingest the slide again: smaller levels are added."
        )
    shrink = max(shrink, array.downsample)
    size_wh = max(1, round(width_px0 / shrink)), max(1, round(height_px0 / shrink))
    return for_screen(reader, array.array.read_whole(*size_wh))


def render_thumbnail_jpeg(reader: StoreReader, max_side_px: int) -> bytes:
    """`thumbnail` as image/jpeg."""
    return encode_jpeg(thumbnail(reader, max_side_px))


def render_crop_jpeg(reader: StoreReader, centre_xy0: tuple[int, int], side_px: int, mpp: float) -> bytes:
    """A square around a point as image/jpeg, colours for the screen; white outside the slide.

    Args:
        mpp: µm along its pixels; if the slide was scanned more coarsely, its own resolution.
    """
    mpp = max(mpp, reader.mpp0)
    half_px0 = side_px * mpp / reader.mpp0 / 2
    x_px0, y_px0 = (at - half_px0 for at in centre_xy0)
    return encode_jpeg(for_screen(reader, reader.read_at_mpp(x_px0, y_px0, side_px, side_px, mpp)))


def damage_stripes(reader: StoreReader, max_side_px: int) -> NDArray[np.uint8] | None:
    """Stripes where the slide's file is damaged, to overlay on an image of the whole slide.

    Returns:
        uint8 (height, width, 4), RGBA, transparent elsewhere; None: no damage is known.

    Raises:
        UnreadableError: as `read_damaged`.
    """
    damaged = read_damaged(reader.path)
    if damaged is None:
        return None
    width_px0, height_px0 = reader.size_wh_px0
    step = max(width_px0, height_px0) / max_side_px
    height, width = (max(1, round(side_px0 / step)) for side_px0 in (height_px0, width_px0))
    is_damaged = damaged_cells(*damaged, (height, width), step)
    y, x = np.ogrid[:height, :width]
    stripes = np.zeros((height, width, 4), np.uint8)
    stripes[is_damaged & ((x + y) % _STRIPE_PX < _STRIPE_PX // 3)] = _DAMAGED_RGBA
    return stripes
