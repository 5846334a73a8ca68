"""Size of an area on a slide, the part of it that was scanned, and the tissue in that part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import box
from shapely.geometry.base import BaseGeometry

from pipeline.annotations import polygons_of
from pipeline.store.layers.damaged import read_damaged
from pipeline.store.layers.labels import has_tissue, read_tissue
from pipeline.store.reading.reader import StoreReader

MAX_SAMPLES = 2_000_000
"""Points at which the masks are read: the shares of a circle are then exact to about a thousandth."""
MAX_PER_SIDE = 20_000
_SHIFT = 4
"""Binary places of corners in OpenCV's fixed-point coordinates."""

Mask = tuple[NDArray[np.uint8], float]
"""A mask (y, x) and the level-0 pixels along its cells."""


@dataclass(frozen=True)
class RegionAreas:
    """Areas in mm².

    Attributes:
        area_mm2: the whole area, also where it leaves the slide.
        scanned_mm2: the part that was scanned and is not damaged.
        tissue_mm2: tissue in that part; None if the slide has no tissue mask.
    """

    area_mm2: float
    scanned_mm2: float
    tissue_mm2: float | None

    @property
    def is_all_scanned(self) -> bool:
        """Whether less than a thousandth of the area is missing."""
        return self.scanned_mm2 >= 0.999 * self.area_mm2


class SlideMasks:
    """Scanned box, damage and tissue of a slide, read once for several areas."""

    def __init__(self, reader: StoreReader) -> None:
        """Raises UnreadableError: the store states a mask that cannot be read."""
        width, height = reader.size_wh_px0
        bounds = reader.attributes.bounds_px0
        self.mpp0 = reader.mpp0
        self.scanned: BaseGeometry = box(0, 0, width, height)
        if bounds is not None:
            left, top = bounds.x_px, bounds.y_px
            self.scanned = self.scanned.intersection(box(left, top, left + bounds.width_px, top + bounds.height_px))
        self._damaged = read_damaged(reader.path)
        self._tissue: Mask | None = None
        if has_tissue(reader.path):
            mask_yx, mpp = read_tissue(reader.path)
            self._tissue = mask_yx, mpp / self.mpp0

    def areas(self, shape: BaseGeometry) -> RegionAreas:
        """Areas of a polygon in level-0 pixels."""
        mm2 = (self.mpp0 / 1000) ** 2
        inside = shape.intersection(self.scanned)
        if inside.area == 0:
            return RegionAreas(shape.area * mm2, 0.0, None if self._tissue is None else 0.0)
        samples = _Samples(inside)
        intact = samples.all if self._damaged is None else ~samples.read(self._damaged)
        scanned = inside.area * samples.share(intact)
        tissue = None if self._tissue is None else inside.area * samples.share(intact & samples.read(self._tissue))
        return RegionAreas(shape.area * mm2, scanned * mm2, None if tissue is None else tissue * mm2)


class _Samples:
    """Points of a regular grid that lie in a shape, at which masks are read."""

    def __init__(self, shape: BaseGeometry) -> None:
        left, top, right, bottom = shape.bounds
        self._step = max(
            math.sqrt((right - left) * (bottom - top) / MAX_SAMPLES), (right - left + bottom - top) / 20_000
        )
        columns = max(1, math.ceil((right - left) / self._step))
        rows = max(1, math.ceil((bottom - top) / self._step))
        self._left, self._top = left, top
        filled = np.zeros((rows, columns), np.uint8)
        cv2.fillPoly(
            filled, [self._ring(ring) for part in polygons_of(shape) for ring in _rings(part)], 1, shift=_SHIFT
        )
        self._rows, self._columns = np.nonzero(filled)

    @property
    def all(self) -> NDArray[np.bool_]:
        return np.ones(len(self._rows), bool)

    def read(self, mask: Mask) -> NDArray[np.bool_]:
        """Values of a mask at the points; false beyond it."""
        values_yx, cell_px0 = mask
        rows = self._cells(self._top, self._rows, cell_px0)
        columns = self._cells(self._left, self._columns, cell_px0)
        known = (rows < values_yx.shape[0]) & (columns < values_yx.shape[1])
        is_set: NDArray[np.bool_] = known & (values_yx[np.where(known, rows, 0), np.where(known, columns, 0)] > 0)
        return is_set

    def share(self, is_set: NDArray[np.bool_]) -> float:
        """Share of the points; 1 for a shape so thin that it has none, if unset points do not exist."""
        return float(is_set.mean()) if len(is_set) else 1.0

    def _cells(self, start_px0: float, indices: NDArray[np.intp], cell_px0: float) -> NDArray[np.intp]:
        positions_px0 = start_px0 + (indices + 0.5) * self._step
        cells: NDArray[np.intp] = np.floor(np.maximum(positions_px0, 0) / cell_px0).astype(np.intp)
        return cells

    def _ring(self, ring: BaseGeometry) -> NDArray[np.int32]:
        """Corners in OpenCV's fixed-point coordinates, in which a pixel's centre is at a whole number."""
        corners = shapely.get_coordinates(ring) - (self._left, self._top)
        return np.round((corners / self._step - 0.5) * (1 << _SHIFT)).astype(np.int32)


def _rings(polygon: shapely.Polygon) -> list[BaseGeometry]:
    return [polygon.exterior, *polygon.interiors]


AreasOf = Callable[[BaseGeometry], RegionAreas]
