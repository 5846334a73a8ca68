"""How often outlines cross, counted before any of them is repaired or joined.

GEOS takes about 25 µs and 2 kB for each place where two outlines cross, and a star of 3,000 corners has millions of
them. In the files of people that we have, outlines cross 107 times at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import shapely
from numpy.typing import NDArray

from pipeline.annotations.objects import AnnotationObject
from pipeline.errors import BadAnnotationError

MAX_CROSSINGS = 40_000
"""Of all areas of a file that are repaired or joined, with themselves and each other."""
MAX_PAIRS, MAX_PAIRS_PER_EDGE = 1_000_000, 10
"""Edges whose bounds overlap, which have to be compared. AnnotationObject outlines have two pairs per edge or fewer."""
_PAIRS_AT_ONCE = 1_000_000

_Points = NDArray[np.float64]


def check_crossings(areas: Sequence[AnnotationObject]) -> None:
    """Refuse areas that would take minutes and gigabytes to repair or to join.

    Raises:
        BadAnnotationError: names the area at which the count went beyond what is allowed.
    """
    if not areas or (len(areas) == 1 and areas[0].geometry.is_valid):
        return
    start, end, owner = _edges(areas)
    crossings, pairs = 0, 0
    for one, other in _close_pairs(start, end):
        pairs += len(one)
        meet = _cross(start[one], end[one], start[other], end[other])
        crossings += int(meet.sum())
        if crossings > MAX_CROSSINGS or pairs > MAX_PAIRS + MAX_PAIRS_PER_EDGE * len(start):
            obj = areas[owner[one[-1]]]
            raise BadAnnotationError(
                f"{obj.where} (class {obj.class_name!r}): the file's outlines cross more than {MAX_CROSSINGS} "
                "times, or run so close together that this cannot be told. Nobody draws so: simplify the outlines, or "
                "export fewer areas."
            )


def _edges(areas: Sequence[AnnotationObject]) -> tuple[_Points, _Points, NDArray[np.int64]]:
    """Start and end of each edge, (n, 2) both, and the number of its area."""
    rings, part_of_ring = shapely.get_rings(shapely.get_parts([obj.geometry for obj in areas]), return_index=True)
    _, area_of_part = shapely.get_parts([obj.geometry for obj in areas], return_index=True)
    corners, ring_of_corner = shapely.get_coordinates(rings, return_index=True)
    is_edge = ring_of_corner[:-1] == ring_of_corner[1:]
    is_edge &= (corners[:-1] != corners[1:]).any(1)
    owner = area_of_part[part_of_ring[ring_of_corner[:-1]]]
    return corners[:-1][is_edge], corners[1:][is_edge], owner[is_edge]


def _close_pairs(start: _Points, end: _Points) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Numbers of edges whose bounds overlap, each pair once, some at a time."""
    count = len(start)
    low, high = np.minimum(start, end), np.maximum(start, end)
    boxes = shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
    tree, at, step = shapely.STRtree(boxes), 0, max(1, _PAIRS_AT_ONCE // max(1, count))
    while at < count:
        one, other = tree.query(boxes[at : at + step])
        one += at
        yield one[one < other], other[one < other]
        at += step
        # More at once where few are close, but never more pairs than a few times the memory of these.
        step = max(1, min(2 * step, step * _PAIRS_AT_ONCE // max(1, len(one)), 8 * _PAIRS_AT_ONCE // count))


def _cross(a: _Points, b: _Points, c: _Points, d: _Points) -> NDArray[np.bool_]:
    """Whether edges ab and cd have a point in common that is not a corner of both, or run along each other."""
    side_a, side_b = _side(c, d, a), _side(c, d, b)
    maybe = np.flatnonzero(side_a * side_b <= 0)
    a, b, c, d, side_a, side_b = a[maybe], b[maybe], c[maybe], d[maybe], side_a[maybe], side_b[maybe]
    in_line = (side_a == 0) & (side_b == 0)
    ac, ad, bc, bd = _same(a, c), _same(a, d), _same(b, c), _same(b, d)
    length_in_common = np.minimum(np.maximum(a, b), np.maximum(c, d)) - np.maximum(np.minimum(a, b), np.minimum(c, d))
    along = in_line & (length_in_common > 0).any(1) & ~((ac & bd) | (ad & bc))
    across = ~in_line & (_side(a, b, c) * _side(a, b, d) <= 0) & ~(ac | ad | bc | bd)
    return np.asarray(along | across)


def _same(a: _Points, b: _Points) -> NDArray[np.bool_]:
    return np.asarray((a[:, 0] == b[:, 0]) & (a[:, 1] == b[:, 1]))


def _side(a: _Points, b: _Points, point: _Points) -> NDArray[np.float64]:
    """Sign of the area of the triangle: on which side of the line ab the point lies."""
    (abx, aby), (apx, apy) = (b - a).T, (point - a).T
    return np.asarray(np.sign(abx * apy - aby * apx))
