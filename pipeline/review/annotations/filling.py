"""The area of similarly stained tissue around a point: OpenCV's flood fill on distances of optical density."""

from __future__ import annotations

from collections import defaultdict

import cv2
import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.box import Box
from pipeline.codecs import Pixels
from pipeline.errors import BadAnnotationError
from pipeline.store.reading.reader import StoreReader

FIELD_PX = 1536
"""Side of the square in which the fill stays, in pixels at the requested resolution: about a screen."""
MAX_DENSITY = 0.6
"""Difference of optical density in each colour at a tolerance of 1; H&E and DAB reach 1 to 2."""
_SMOOTH_PX, _CLOSE_PX, _MIN_HOLE_PX = 1.5, 5, 60
_KEEP_ONE_SIDE = 4 | cv2.FLOODFILL_FIXED_RANGE | cv2.FLOODFILL_MASK_ONLY | (255 << 8)


def fill_similar(reader: StoreReader, x_px0: float, y_px0: float, *, mpp: float, tolerance: float) -> BaseGeometry:
    """The connected area around a point whose stain is like that at the point.

    Args:
        x_px0, y_px0: the point, in level-0 pixels.
        mpp: µm per pixel at which to look; no finer than scanned.
        tolerance: 0 to 1, of the difference of stain that still counts as similar.

    Raises:
        BadAnnotationError: the point is not on the slide, or a value is out of range.
    """
    width, height = reader.size_wh_px0
    if not (0 <= x_px0 < width and 0 <= y_px0 < height):
        raise BadAnnotationError(f"x {x_px0:.0f}, y {y_px0:.0f}: not on the slide, which has {width}×{height} pixels.")
    if not (0 < mpp < 1e4 and 0 < tolerance <= 1):
        raise BadAnnotationError(f"mpp {mpp!r:.20}, tolerance {tolerance!r:.20}: expected µm per pixel, and 0 to 1.")
    level = reader.level_for_downsample(max(1.0, mpp / reader.mpp0))
    downsample = reader.levels[level].downsample
    field = _field(reader, level, x_px0 / downsample, y_px0 / downsample)
    pixels = reader.read_region(level, field)
    seed = int(x_px0 / downsample) - field.x_px, int(y_px0 / downsample) - field.y_px
    seed = min(max(seed[0], 0), pixels.shape[1] - 1), min(max(seed[1], 0), pixels.shape[0] - 1)
    return _outline(_similar(pixels, seed, tolerance), field, downsample)


def _field(reader: StoreReader, level: int, x_px: float, y_px: float) -> Box:
    """The square around the point, moved to lie on the level where that is large enough."""
    info = reader.levels[level]
    width, height = min(FIELD_PX, info.width_px), min(FIELD_PX, info.height_px)
    left = min(max(int(x_px) - width // 2, 0), info.width_px - width)
    top = min(max(int(y_px) - height // 2, 0), info.height_px - height)
    return Box(left, top, width, height)


def _similar(pixels: Pixels, seed_xy: tuple[int, int], tolerance: float) -> NDArray[np.uint8]:
    """uint8 (y, x), 1 where it is similar and connected to the seed."""
    density = -np.log10((pixels.astype(np.float32) + 1) / 256)
    smooth = cv2.GaussianBlur(density, (0, 0), _SMOOTH_PX)
    mask = np.zeros((pixels.shape[0] + 2, pixels.shape[1] + 2), np.uint8)
    difference = (float(tolerance * MAX_DENSITY),) * 3
    cv2.floodFill(smooth, mask, seed_xy, (0, 0, 0), difference, difference, _KEEP_ONE_SIDE)
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (_CLOSE_PX, _CLOSE_PX))
    closed = cv2.morphologyEx(mask[1:-1, 1:-1], cv2.MORPH_CLOSE, disc)
    return np.asarray(closed > 0, np.uint8)


def _outline(mask: NDArray[np.uint8], field: Box, downsample: float) -> BaseGeometry:
    contours, hierarchy = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    rings = [contour.reshape(-1, 2).astype(float) for contour in contours]
    parents = hierarchy[0][:, 3].tolist() if len(rings) else []
    holes_of = defaultdict(list)
    for ring, parent in zip(rings, parents, strict=True):
        if parent >= 0 and len(ring) > 2 and Polygon(ring).area >= _MIN_HOLE_PX:
            holes_of[parent].append(ring)
    # Contours run through the centres of pixels; half a pixel more is their edge.
    polygons = [
        Polygon(ring, holes_of[index]).buffer(0.5, join_style="mitre")
        for index, (ring, parent) in enumerate(zip(rings, parents, strict=True))
        if parent < 0 and len(ring) > 2
    ]
    whole = shapely.simplify(shapely.union_all(polygons), 0.7)
    if whole.is_empty:
        raise BadAnnotationError("Nothing similar around this point: lower the similarity, or zoom in.")
    moved: BaseGeometry = shapely.transform(whole, lambda xy: (xy + 0.5 + (field.x_px, field.y_px)) * downsample)
    return moved
