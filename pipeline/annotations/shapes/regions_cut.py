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
"""Holes cut by the negative regions of a layer; one that lies in several regions cuts one in each."""
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
    """Turn the negative regions into holes, in place.

    Returns:
        One sentence for each negative region that overlaps no region of the file, and each region that is empty
        because negative ones cover it.

    Raises:
        BadAnnotationError: outlines cross, or holes are cut, too often to be done in a moment; or a negative region
            lies only in a region of another layer.
    """
    check_crossings([o for layer in layers if layer.negative for o in (*layer.positive, *layer.negative) if o.is_area])
    lone = [hole for layer in layers for hole in _lone_after_cutting(layer)]
    _check_in_no_other_layer(lone, layers)
    covered = [o for layer in layers if layer.negative for o in layer.positive if o.geometry.is_empty]
    return [f"{hole.where}: a negative region that lies in no region of its layer" for hole in lone] + [
        f"{obj.where}: negative regions cover all of it" for obj in covered
    ]


def _lone_after_cutting(layer: Layer) -> list[AnnotationObject]:
    """Cut a layer's holes. Returns those that overlap none of its regions."""
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
                "region that they overlap: move nested regions to separate layers."
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
    """Regions that a hole cuts into, not those that only share its edge."""
    area = repair(hole.geometry)
    only_touched = set(tree.query(area, predicate="touches").tolist())
    return sorted(set(tree.query(area, predicate="intersects").tolist()) - only_touched)


def _check_in_no_other_layer(lone: Sequence[AnnotationObject], layers: Sequence[Layer]) -> None:
    """Refuse a hole in another layer's region: it would be lost, and the area it excludes would be labelled."""
    if not lone:
        return
    others = [obj for layer in layers for obj in layer.positive]
    check_crossings([obj for obj in (*lone, *others) if obj.is_area])
    tree = _tree(others)
    for hole in lone:
        overlapped = _overlapped(tree, hole)
        if overlapped:
            other = others[overlapped[0]]
            raise BadAnnotationError(
                f"{hole.where}: a negative region that lies in no region of its own layer, but in {other.where} (class "
                f"{other.class_name!r}). ImageScope and HALO cut holes only within a layer: move it to that layer, or "
                "delete it."
            )


def _minus_all(area: BaseGeometry, holes: Sequence[BaseGeometry]) -> BaseGeometry:
    """The area less all holes, as if they were cut out one after another, in order."""
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
    """The area with the hole as an inner ring if equivalent, so that both keep their corners; else the difference."""
    if isinstance(area, Polygon) and isinstance(hole, Polygon):
        candidate = Polygon(area.exterior, [*area.interiors, hole.exterior])
        if candidate.is_valid or not (area.is_valid and hole.is_valid):
            return candidate  # an invalid one is repaired, and counted, later
    return MultiPolygon(polygons_of(repair(area).difference(repair(hole))))
