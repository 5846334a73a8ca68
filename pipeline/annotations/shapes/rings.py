"""From lists of corners to shapes, and back; shared by the formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import LineString, MultiPoint, MultiPolygon, Point, Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.errors import BadAnnotationError
from training.foundation.words.counts import counted

Corners = NDArray[np.float64]

ELLIPSE_CORNERS = 64
MAX_PX0 = 1e9
"""No slide is this wide; larger numbers, infinity and NaN are damage."""


def corners_of(points: Any, where: str) -> Corners:
    """(n, 2) x, y in level-0 pixels from a list of 2-D or 3-D points; a third coordinate is dropped.

    Raises:
        BadAnnotationError: not a list of points, or a coordinate that no slide can have.
    """
    try:
        corners = np.asarray(points if len(points) else np.empty((0, 2)), dtype=np.float64)
        if corners.ndim != 2 or corners.shape[1] < 2:
            raise ValueError(f"points of shape {corners.shape}, not (n, 2)")
    except (ValueError, TypeError, OverflowError) as error:
        raise BadAnnotationError(f"{where}: its outline cannot be built: {error}. Export the file again.") from error
    if not (np.abs(corners) < MAX_PX0).all():
        raise BadAnnotationError(
            f"{where}: a coordinate is not a number of pixels below {MAX_PX0:.0e}. Export the file again."
        )
    return np.ascontiguousarray(corners[:, :2])


def area_of(polygons: Sequence[Sequence[Corners]], where: str) -> tuple[Polygon | MultiPolygon | None, list[str]]:
    """A Polygon or MultiPolygon as drawn, one (outline, hole, …) per part; rings of under three corners are dropped.

    Returns:
        The area, or None if nothing is left, and one sentence for each dropped ring.
    """
    built, dropped = [], []
    for rings in polygons:
        real = [_has_three_corners(ring) for ring in rings]
        for ring in (ring for ring, is_real in zip(rings, real, strict=True) if not is_real):
            dropped.append(f"{where}: a ring of {counted(len(ring), 'point')} encloses nothing")
        if real and real[0]:
            built.append(Polygon(rings[0], [r for r, ok in zip(rings[1:], real[1:], strict=True) if ok]))
    if not built:
        return None, dropped or [f"{where}: has no points"]
    return (built[0] if len(built) == 1 else MultiPolygon(built)), dropped


def _has_three_corners(ring: Corners) -> bool:
    first = {(x, y) for x, y in ring[:16].tolist()}
    return len(first) >= 3 or len(np.unique(ring, axis=0)) >= 3


def points_of(corners: Corners) -> BaseGeometry:
    """A Point, or a MultiPoint for several."""
    return Point(corners[0]) if len(corners) == 1 else MultiPoint(corners)


def line_of(corners: Corners) -> BaseGeometry:
    """A LineString; a line of one point is a Point."""
    return LineString(corners) if len(corners) > 1 else points_of(corners)


def rectangle_around(corners: Corners) -> Corners:
    """The four corners of the upright rectangle around the points."""
    (left, top), (right, bottom) = corners.min(0), corners.max(0)
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]])


def ellipse_within(corners: Corners) -> Corners:
    """The ellipse that touches the sides of the upright rectangle around the points, as a polygon."""
    low, high = corners.min(0), corners.max(0)
    angle = np.linspace(0, 2 * np.pi, ELLIPSE_CORNERS, endpoint=False)
    unit = np.stack([np.cos(angle), np.sin(angle)], -1)
    return np.asarray((low + high) / 2 + unit * (high - low) / 2)


def polygons_of(geometry: BaseGeometry) -> list[Polygon]:
    """The polygons of an area, or of any mixture."""
    parts = shapely.get_parts(shapely.get_parts(geometry))
    return [part for part in parts if part.geom_type == "Polygon" and not part.is_empty]


def open_ring(ring: BaseGeometry) -> list[tuple[float, float]]:
    """Corners without the point that closes the ring, for formats that close it themselves.

    If the ring ends with its start twice, all corners are kept: a reader takes the last for the closing point.
    """
    corners = shapely.get_coordinates(ring)
    kept = corners if (corners[-2] == corners[0]).all() else corners[:-1]
    return [(float(x), float(y)) for x, y in kept]


def without_holes(polygon: Polygon) -> Iterator[Polygon]:
    """Polygons without holes that together exactly cover a valid one, cut along vertical lines through its holes."""
    waiting = [polygon]
    while waiting:
        part = waiting.pop()
        if not part.interiors:
            yield part
            continue
        x = Polygon(part.interiors[0]).representative_point().x
        left, top, right, bottom = part.bounds
        for half in ((left - 1, x), (x, right + 1)):
            waiting += polygons_of(part.intersection(shapely.box(half[0], top - 1, half[1], bottom + 1)))
