"""Negative regions of ImageScope and HALO: holes in every region of their layer that they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import shapely
from shapely.geometry import MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.shapes.crossings import check_crossings
from pipeline.annotations.shapes.objects import AnnotationObject, Rgb
from pipeline.annotations.shapes.repair import repair
from pipeline.annotations.shapes.rings import polygons_of
from pipeline.errors import BadAnnotationError

MAX_CUTS = 20_000
"""Holes that the negative regions of a layer cut; one that lies in many regions cuts one in each."""
MAX_CUT_SINGLY = 200


@dataclass
class Layer:
    """One layer's regions, before the negative ones are cut out of the others."""

    where: str
    """File and layer, for messages."""
    color: Rgb | None
    class_name: str | None
    positive: list[AnnotationObject] = field(default_factory=list)
    negative: list[AnnotationObject] = field(default_factory=list)


def cut_out(layers: Sequence[Layer]) -> list[str]:
    """Make holes of the negative regions, in place.

    Returns:
        One sentence for each negative region that touches no region of the file, and each region that is covered by
        negative ones and is empty now.

    Raises:
        BadAnnotationError: outlines cross, or holes are cut, more often than can be done in a moment; or a negative
            region lies in a region of another layer only.
    """
    check_crossings([o for each in layers if each.negative for o in (*each.positive, *each.negative) if o.is_area])
    lone = [hole for layer in layers for hole in _lone_after_cutting(layer)]
    _check_in_no_other_layer(lone, layers)
    covered = [o for each in layers if each.negative for o in each.positive if o.geometry.is_empty]
    return [f"{hole.where}: a negative region that lies in no region of its layer" for hole in lone] + [
        f"{each.where}: negative regions cover all of it" for each in covered
    ]


def _lone_after_cutting(layer: Layer) -> list[AnnotationObject]:
    """Cut a layer's holes; those that touch no region of it are left."""
    lone: list[AnnotationObject] = []
    if not layer.negative:
        return lone
    holes_in: dict[int, list[BaseGeometry]] = {}
    tree = _tree(layer.positive)
    num_cuts = 0
    for hole in layer.negative:
        cut = _overlapped(tree, hole)
        num_cuts += len(cut)
        if num_cuts > MAX_CUTS:
            raise BadAnnotationError(
                f"{hole.where}: with it, negative regions of its layer cut more than {MAX_CUTS} holes. They cut every "
                "region that they touch: give regions that lie in each other layers of their own."
            )
        for index in cut:
            holes_in.setdefault(index, []).append(hole.geometry)
        if not cut:
            lone.append(hole)
    for index, holes in holes_in.items():
        layer.positive[index] = replace(
            layer.positive[index], geometry=_minus_all(layer.positive[index].geometry, holes)
        )
    return lone


def _tree(regions: Sequence[AnnotationObject]) -> shapely.STRtree:
    return shapely.STRtree([repair(obj.geometry) if obj.is_area else Polygon() for obj in regions])


def _overlapped(tree: shapely.STRtree, hole: AnnotationObject) -> list[int]:
    """Regions of which a hole takes something; those that share only its edge are whole afterwards."""
    area = repair(hole.geometry)
    only_touched = set(tree.query(area, predicate="touches").tolist())
    return sorted(set(tree.query(area, predicate="intersects").tolist()) - only_touched)


def _check_in_no_other_layer(lone: Sequence[AnnotationObject], layers: Sequence[Layer]) -> None:
    """A hole in another layer's region would be lost, and what it leaves out would be labelled."""
    if not lone:
        return
    others = [obj for layer in layers for obj in layer.positive]
    check_crossings([obj for obj in (*lone, *others) if obj.is_area])
    tree = _tree(others)
    for hole in lone:
        found = _overlapped(tree, hole)
        if found:
            other = others[found[0]]
            raise BadAnnotationError(
                f"{hole.where}: a negative region that lies in no region of its own layer, but in {other.where} (class "
                f"{other.class_name!r}). ImageScope and HALO cut holes within a layer only: move it into that layer, "
                "or delete it."
            )


def _minus_all(area: BaseGeometry, holes: Sequence[BaseGeometry]) -> BaseGeometry:
    """The area less all holes: as if they were cut out one after the other, in their order."""
    outlines = [hole.exterior for hole in holes if isinstance(hole, Polygon)]
    if isinstance(area, Polygon) and len(outlines) == len(holes):
        candidate = Polygon(area.exterior, [*area.interiors, *outlines])
        if candidate.is_valid:
            return candidate
    if len(holes) > MAX_CUT_SINGLY:  # each would be tried with all before it
        return MultiPolygon(polygons_of(repair(area).difference(shapely.union_all([repair(hole) for hole in holes]))))
    for hole in holes:
        area = _minus(area, hole)
    return area


def _minus(area: BaseGeometry, hole: BaseGeometry) -> BaseGeometry:
    """The hole as an inner ring where that says the same, so that both keep their corners; else the difference."""
    if isinstance(area, Polygon) and isinstance(hole, Polygon):
        candidate = Polygon(area.exterior, [*area.interiors, hole.exterior])
        if candidate.is_valid or not (area.is_valid and hole.is_valid):
            return candidate  # a broken one is repaired later, and counted
    return MultiPolygon(polygons_of(repair(area).difference(repair(hole))))
