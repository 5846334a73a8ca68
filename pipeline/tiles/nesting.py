"""Outlines within outlines: each point belongs to the innermost outline around it, as in QuPath's hierarchy.

An outline is one polygon of a region. It lies within a larger one if at least `MIN_INSIDE` of its area does, holes
counted as filled: a tumour is drawn across the holes of a tissue outline, and by hand a little beyond its edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import Polygon
from shapely.geometry.base import BaseGeometry

MIN_INSIDE = 0.95
"""Share of an outline's area that must lie within a larger one."""
MAX_LARGER = 1 - 1e-6
"""Ratio of areas up to which one outline is smaller than another; two that are equal are not nested."""
MAX_LOOKED_AT = 256
"""Outlines whose neighbours are queried at once."""

_Shapes = NDArray[np.object_]
_Indices = NDArray[np.int64]


def innermost(outlines: Sequence[Polygon], class_names: Sequence[str]) -> list[BaseGeometry]:
    """Of each outline, the area that belongs to no outline of another class within it; it may be empty.

    Outlines that overlap without one lying within the other keep all of their area.

    Args:
        class_names: one per outline.
    """
    own: list[BaseGeometry] = list(outlines)
    if len(set(class_names)) < 2:
        return own
    taken: list[BaseGeometry] = list(outlines)  # by an outline and those within it, which may lie in its holes
    is_reduced = np.zeros(len(own), bool)
    for outer, inside in _nested(np.asarray(outlines, dtype=object)):
        taking = [i for i in inside if is_reduced[i] or class_names[i] != class_names[outer]]
        if not taking:
            continue
        inner = shapely.disjoint_subset_union_all([taken[i] for i in taking])
        own[outer] = outlines[outer].difference(inner)
        is_reduced[outer] = True
        if outlines[outer].interiors:
            taken[outer] = outlines[outer].union(inner)
    return own


def filled_areas(outlines: Sequence[Polygon]) -> NDArray[np.float64]:
    """Areas of the outlines, holes included."""
    return np.asarray(shapely.area(_filled(outlines)), np.float64)


def _filled(outlines: Sequence[Polygon] | _Shapes) -> _Shapes:
    return np.asarray(shapely.polygons(shapely.get_exterior_ring(np.asarray(outlines, dtype=object))))


def _nested(outlines: _Shapes) -> Iterator[tuple[int, list[int]]]:
    """Each outline that has others directly within it, and those, the smallest first."""
    filled = _filled(outlines)
    area = shapely.area(filled)
    shapely.prepare(filled)
    is_outermost = np.zeros(len(filled), bool)
    directly_within: dict[int, list[int]] = {}
    for outer, smaller in _neighbours(filled, area):
        inside = _directly_inside(outer, smaller[is_outermost[smaller]], filled, directly_within)
        is_outermost[inside] = False
        is_outermost[outer] = True
        if inside:
            directly_within[outer] = inside
            yield outer, inside


def _neighbours(filled: _Shapes, area: NDArray[np.float64]) -> Iterator[tuple[int, _Indices]]:
    """Each outline, the smallest first, and the smaller ones whose bounds meet its own."""
    tree, order = shapely.STRtree(filled), np.argsort(area, kind="stable")
    for start in range(0, len(order), MAX_LOOKED_AT):
        some = order[start : start + MAX_LOOKED_AT]
        one, other = tree.query(filled[some])
        smaller = area[other] < area[some[one]] * MAX_LARGER
        one, other = one[smaller], other[smaller]
        ends = np.searchsorted(one, np.arange(1, len(some)))
        yield from zip(some.tolist(), np.split(other, ends), strict=True)


def _directly_inside(
    outer: int, outermost: _Indices, filled: _Shapes, directly_within: dict[int, list[int]]
) -> list[int]:
    """The outlines within one that lie within no other there; those that only overlap are searched for some."""
    found: list[int] = []
    waiting, seen = outermost, set(outermost.tolist())
    while len(waiting):
        is_inside = _lie_within(filled[waiting], filled[outer])
        found += waiting[is_inside].tolist()
        rest = waiting[~is_inside]
        overlapping = rest[shapely.intersects(filled[outer], filled[rest])]
        below = {i for index in overlapping.tolist() for i in directly_within.get(index, ())} - seen
        seen |= below
        waiting = np.asarray(sorted(below), dtype=np.int64)
    return found


def _lie_within(smaller: _Shapes, larger: BaseGeometry) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = shapely.covers(larger, smaller)
    near = ~inside & shapely.intersects(larger, smaller)
    shared = shapely.area(shapely.intersection(smaller[near], larger))
    inside[near] = shared >= MIN_INSIDE * shapely.area(smaller[near])
    return inside
