"""Areas made of areas: joined into one, or split by a line."""

from __future__ import annotations

from collections.abc import Sequence

import shapely
from shapely.geometry import LineString, MultiPolygon
from shapely.geometry.base import BaseGeometry
from shapely.ops import split

from pipeline.annotations import polygons_of, repaired_area
from pipeline.errors import BadAnnotationError

MAX_PARTS = 100


def joined(areas: Sequence[BaseGeometry]) -> BaseGeometry:
    """One area of several; in parts where they do not touch.

    Raises:
        BadAnnotationError: fewer than two, or something else than areas.
    """
    if len(areas) < 2:
        raise BadAnnotationError("Choose two areas or more to join.")
    parts = polygons_of(shapely.union_all([_area(area) for area in areas]))
    return parts[0] if len(parts) == 1 else MultiPolygon(parts)


def split_by(area: BaseGeometry, line: BaseGeometry) -> list[BaseGeometry]:
    """The pieces of an area on both sides of a line, the largest first.

    Raises:
        BadAnnotationError: the line does not lead through the area, or cuts it into more than `MAX_PARTS`.
    """
    if not isinstance(line, LineString):
        raise BadAnnotationError(f"An area is split by a line, not by a {line.geom_type}.")
    # A line that crosses itself is cut at the crossings first.
    pieces = [
        piece for part in polygons_of(_area(area)) for piece in polygons_of(split(part, shapely.unary_union(line)))
    ]
    if len(pieces) <= len(polygons_of(area)):
        raise BadAnnotationError("The line does not lead through the area: begin and end it outside.")
    if len(pieces) > MAX_PARTS:
        raise BadAnnotationError(f"The line cuts the area into {len(pieces)} pieces; {MAX_PARTS} are the most.")
    return sorted(pieces, key=lambda piece: -piece.area)


def _area(shape: BaseGeometry) -> BaseGeometry:
    if shape.geom_type not in ("Polygon", "MultiPolygon"):
        raise BadAnnotationError(f"Only areas can be joined and split, not a {shape.geom_type}.")
    area: BaseGeometry = repaired_area(shape, "the area")
    return area
