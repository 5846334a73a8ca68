"""A tile of a reduced level rebuilt from the level before it."""

from __future__ import annotations

import cv2
import numpy as np

from pipeline.box import Box
from pipeline.codecs.images import encode_jpeg, encode_jpeg_2000
from pipeline.codecs.types import Pixels, StreamCodec
from pipeline.slides.common.slide import Slide, SlideInfo

_QUALITY = 95


def tile_box(info: SlideInfo, level: int, tile_px: int, row: int, column: int) -> Box:
    """Area of its level that a tile covers, in the level's pixels, cut off at the slide's edges."""
    size = info.levels[level]
    return Box(column * tile_px, row * tile_px, tile_px, tile_px).within(size.width_px, size.height_px)


def box_in_parent(info: SlideInfo, level: int, box: Box) -> Box:
    """A box of a level in the pixels of the level before."""
    size, parent = info.levels[level], info.levels[level - 1]
    ratio = size.downsample / parent.downsample
    left, top = round(box.x_px * ratio), round(box.y_px * ratio)
    right = min(round(box.right_px * ratio), parent.width_px)
    bottom = min(round(box.bottom_px * ratio), parent.height_px)
    return Box(left, top, max(1, right - left), max(1, bottom - top))


def from_parent(slide: Slide, level: int, box: Box) -> Pixels:
    """A box of a level, averaged from the level before."""
    region = slide.read_region(level - 1, box_in_parent(slide.info, level, box))
    return np.asarray(cv2.resize(region, box.size_wh_px, interpolation=cv2.INTER_AREA), np.uint8)


def encoded_tile(pixels: Pixels, codec: StreamCodec, tile_px: int) -> bytes:
    """Pixels as a whole tile's stream; the padding repeats their edge."""
    full = np.pad(pixels, ((0, tile_px - pixels.shape[0]), (0, tile_px - pixels.shape[1]), (0, 0)), mode="edge")
    return encode_jpeg(full, quality=_QUALITY) if codec == "imagecodecs_jpeg" else encode_jpeg_2000(full)
