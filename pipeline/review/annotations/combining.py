"""Joining areas into one, and splitting an area by a line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import LineString, MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations import AnnotationObject, CrossingCount, polygons_of, repaired_area
from pipeline.errors import BadAnnotationError
from training.foundation.words.counts import counted

MAX_PARTS = 100
MAX_AREAS = 500
"""Most areas joined at once."""
MAX_CUTS = 4_000
"""Crossings of one split. A line that cuts an area into `MAX_PARTS` pieces needs a few hundred."""


def merge_annotations(areas: Sequence[BaseGeometry]) -> BaseGeometry:
    """Join several areas into one; in parts where they do not touch.

    Raises:
        BadAnnotationError: fewer than two areas, more than `MAX_AREAS`, shapes that are not areas, or outlines with
            too many crossings to join quickly.
    """
    if not 2 <= len(areas) <= MAX_AREAS:
        raise BadAnnotationError(f"Choose 2 to {MAX_AREAS} areas to join ({counted(len(areas), 'is', 'are')} chosen).")
    _check_areas(areas)
    CrossingCount().add([AnnotationObject(area, f"area {index}") for index, area in enumerate(areas)])
    parts = polygons_of(shapely.union_all([_valid(area) for area in areas]))
    return parts[0] if len(parts) == 1 else MultiPolygon(parts)


def subtract_annotation(area: BaseGeometry, part: BaseGeometry) -> BaseGeometry:
    """The area without the part of it that lies in another one.

    Raises:
        BadAnnotationError: nothing would be left, a shape is not an area, or their outlines cross too often.
    """
    _check_areas([area, part])
    CrossingCount().add([AnnotationObject(area, "the area"), AnnotationObject(part, "the part to erase")])
    parts = polygons_of(shapely.difference(_valid(area), _valid(part)))
    if not parts:
        raise BadAnnotationError("Nothing would be left of the area. Delete it instead.")
    return parts[0] if len(parts) == 1 else MultiPolygon(parts)


def split_annotation(area: BaseGeometry, line: BaseGeometry) -> list[BaseGeometry]:
    """The pieces into which a line cuts an area, largest first.

    Raises:
        BadAnnotationError: the line does not cut through the area, cuts it into more than `MAX_PARTS`, or crosses it
            and itself too often to cut quickly.
    """
    if not isinstance(line, LineString):
        raise BadAnnotationError(f"An area can be split by a line, not by a {line.geom_type}.")
    _check_areas([area])
    own = CrossingCount()
    own.add([AnnotationObject(area, "the area")])
    count = CrossingCount(limit=own.crossings + MAX_CUTS)
    count.add([AnnotationObject(area, "the area"), AnnotationObject(line, "the line")])
    whole = polygons_of(_valid(area))
    pieces = [piece for part in whole for piece in _cut(part, line)]
    if len(pieces) <= len(whole):
        raise BadAnnotationError("The line does not cut through the area. Start and end it outside.")
    if len(pieces) > MAX_PARTS:
        raise BadAnnotationError(f"The line cuts the area into {len(pieces)} pieces; at most {MAX_PARTS} are allowed.")
    return sorted(pieces, key=lambda piece: -piece.area)


def _cut(part: Polygon, line: LineString) -> NDArray[np.object_]:
    """The faces enclosed by the outline and the line together that are inside the part."""
    faces = polygons_of(shapely.polygonize([shapely.union_all([part.boundary, line])]))
    shapely.prepare(part)
    lies_inside = shapely.contains_properly(part, shapely.point_on_surface(faces))
    chosen: NDArray[np.object_] = np.asarray(faces, object)[lies_inside]
    return chosen


def _check_areas(shapes: Sequence[BaseGeometry]) -> None:
    for shape in shapes:
        if shape.geom_type not in ("Polygon", "MultiPolygon"):
            raise BadAnnotationError(f"Only areas can be joined and split, not a {shape.geom_type}.")


def _valid(area: BaseGeometry) -> BaseGeometry:
    repaired: BaseGeometry = repaired_area(area, "the area")
    return repaired
