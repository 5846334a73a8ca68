"""Shapes of annotations: untrusted GeoJSON, checked, repaired, and in the form in which it is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from shapely.geometry import box
from shapely.geometry.base import BaseGeometry

from pipeline.annotations import CrossingCount, read_geometry, repaired_area
from pipeline.errors import BadAnnotationError
from pipeline.review.annotations.kinds import KIND_RULES
from training.foundation.words.counts import counted

MAX_VERTICES = 50_000
"""Of one annotation. The longest outline in the public files we have seen has a tenth of that."""
DECIMALS = 2
"""Of a stored coordinate: a hundredth of a level-0 pixel is a few nanometres."""
EDGE_PX0 = 1.0
MIN_REACH_PX0 = 20_000
"""A counting circle of 2 mm² is 6,400 level-0 pixels wide at 0.25 µm/px, however small the slide."""


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
    rule = KIND_RULES[kind]
    points = int(shapely.get_num_coordinates(shape))
    if shapely.get_dimensions(shape) != rule.dimension or (rule.max_points and points != rule.max_points):
        raise BadAnnotationError(f"{where}: a {kind} cannot be a {shape.geom_type} of {counted(points, 'point')}.")
    _check_inside(shape, size_wh_px0, where, may_leave=rule.may_leave_slide)
    if rule.dimension < 2:
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


def _check_inside(shape: BaseGeometry, size_wh_px0: tuple[int, int] | None, where: str, *, may_leave: bool) -> None:
    if size_wh_px0 is None:
        return
    (left, top, right, bottom), (width, height) = shape.bounds, size_wh_px0
    inside = left >= -EDGE_PX0 and top >= -EDGE_PX0 and right <= width + EDGE_PX0 and bottom <= height + EDGE_PX0
    side = max(width, height, MIN_REACH_PX0)
    if may_leave and min(left, top) >= -side and right <= width + side and bottom <= height + side:
        inside = shape.intersects(box(0, 0, width, height))
    if not inside:
        raise BadAnnotationError(
            f"{where}: spans x {left:.0f} to {right:.0f}, y {top:.0f} to {bottom:.0f}, the slide only "
            f"{width}×{height} level-0 pixels. Was it drawn on another slide?"
        )
