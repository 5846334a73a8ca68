"""Shapes of annotations: untrusted GeoJSON, checked, repaired, and in the form in which it is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

from pipeline.annotations import CrossingCount, read_geometry, repaired_area
from pipeline.errors import BadAnnotationError

MAX_VERTICES = 50_000
"""Of one annotation. The longest outline in the public files we have seen has a tenth of that."""
DECIMALS = 2
"""Of a stored coordinate: a hundredth of a level-0 pixel is a few nanometres."""
EDGE_PX0 = 1.0
_DIMENSIONS = {"point": 0, "line": 1, "rectangle": 2, "ellipse": 2, "polygon": 2, "freehand": 2}


def shape_of(geometry: Any, *, where: str) -> BaseGeometry:
    """A shape from parsed GeoJSON of any kind but a collection.

    Raises:
        BadAnnotationError: not such a geometry, no points, or more than `MAX_VERTICES`.
    """
    shape, dropped = read_geometry(geometry, where)
    if shape is None or shape.is_empty:
        raise BadAnnotationError(f"{where}: its geometry has no shape{': ' + dropped[0] if dropped else ''}.")
    return check_size(shape, where)


def check_size(shape: BaseGeometry, where: str) -> BaseGeometry:
    """Return the shape. Raises BadAnnotationError: more than `MAX_VERTICES`."""
    vertices = int(shapely.get_num_coordinates(shape))
    if vertices > MAX_VERTICES:
        raise BadAnnotationError(
            f"{where}: {vertices} corners; at most {MAX_VERTICES} are allowed. Simplify the outline."
        )
    return shape


def stored_shape(
    shape: BaseGeometry,
    kind: str,
    *,
    size_wh_px0: tuple[int, int] | None,
    where: str,
    count: CrossingCount | None = None,
) -> BaseGeometry:
    """The shape as it is kept: finite, on the slide, a valid area, in hundredths of a pixel.

    Args:
        count: crossings of everything saved with it; None: it is saved alone.

    Raises:
        BadAnnotationError: it has no points or no area, lies outside the slide, is not what its kind says, or
            crosses itself too often.
    """
    check_size(shape, where)
    if shape.is_empty or not np.isfinite(shapely.get_coordinates(shape)).all():
        raise BadAnnotationError(f"{where}: its shape is empty or not finite.")
    if shapely.get_dimensions(shape) != _DIMENSIONS[kind]:
        raise BadAnnotationError(f"{where}: a {kind} cannot be a {shape.geom_type}.")
    _check_inside(shape, size_wh_px0, where)
    if kind in ("point", "line"):
        return _rounded(shape)
    solid: BaseGeometry = repaired_area(shape, where, count)
    rounded: BaseGeometry = repaired_area(_rounded(solid), where, count)
    # An area thinner than the rounding keeps its full decimals.
    kept = rounded if rounded.area > 0 else solid
    if kept.area == 0:
        raise BadAnnotationError(f"{where}: its outline encloses no area.")
    return kept


def _rounded(shape: BaseGeometry) -> BaseGeometry:
    rounded: BaseGeometry = shapely.transform(shape, lambda corners: np.round(corners, DECIMALS))
    return rounded


def _check_inside(shape: BaseGeometry, size_wh_px0: tuple[int, int] | None, where: str) -> None:
    if size_wh_px0 is None:
        return
    (left, top, right, bottom), (width, height) = shape.bounds, size_wh_px0
    if left < -EDGE_PX0 or top < -EDGE_PX0 or right > width + EDGE_PX0 or bottom > height + EDGE_PX0:
        raise BadAnnotationError(
            f"{where}: spans x {left:.0f} to {right:.0f}, y {top:.0f} to {bottom:.0f}, the slide only "
            f"{width}×{height} level-0 pixels. Was it drawn on another slide?"
        )
