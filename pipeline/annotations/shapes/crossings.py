"""Count of the crossings of outlines, made before any outline is repaired, joined or split.

GEOS takes about 25 µs and 2 kB for each point where two outlines cross, and a star of 3,000 corners has millions of
them. In our hand-drawn files, outlines cross at most 107 times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray

from pipeline.annotations.shapes.objects import AnnotationObject
from pipeline.errors import BadAnnotationError

MAX_CROSSINGS = 40_000
"""Limit for all outlines that one operation repairs, joins or splits: those of a file or a request."""
MAX_PAIRS, MAX_PAIRS_PER_EDGE = 1_000_000, 10
"""Limits on pairs of edges with overlapping bounds, which must be compared. Drawn outlines have up to two per edge."""
FEW_EDGES = 1_000
"""Up to this many edges, all pairs are compared instantly, so the outline's validity is checked directly."""
_PAIRS_AT_ONCE = 200_000
_BOXES_AT_ONCE = 16
"""Minimum for a million edges, where one query per edge would be slow."""

_Points = NDArray[np.float64]


@dataclass
class CrossingCount:
    """Crossings, pairs of edges and edges counted so far within one operation."""

    limit: int = MAX_CROSSINGS
    crossings: int = 0
    pairs: int = 0
    edges: int = 0

    def add(self, outlines: Sequence[AnnotationObject]) -> None:
        """Count how often outlines of areas or lines cross themselves and each other.

        Raises:
            BadAnnotationError: the operation would take minutes and gigabytes; names the outline at which the count
                exceeded the limit.
        """
        start, end, owner = _edges(outlines)
        self.edges += len(start)
        for one, other in _close_pairs(start, end):
            self.pairs += len(one)
            if self.pairs > MAX_PAIRS + MAX_PAIRS_PER_EDGE * self.edges:
                raise _too_close(outlines[owner[one[-1]]], self.pairs)
            meet = _cross(start[one], end[one], start[other], end[other])
            self.crossings += int(meet.sum())
            if self.crossings > self.limit:
                raise _too_many(outlines[owner[one[-1]]], self.crossings, self.limit)


def check_crossings(areas: Sequence[AnnotationObject]) -> None:
    """Refuse areas that would take minutes and gigabytes to repair or join.

    Raises:
        BadAnnotationError: as `CrossingCount.add`.
    """
    if len(areas) != 1 or not is_quickly_valid(areas[0].geometry):
        CrossingCount().add(areas)


def is_quickly_valid(area: shapely.Geometry) -> bool:
    """Whether an area is valid, and has so few corners that checking takes no time."""
    return int(shapely.get_num_coordinates(area)) <= FEW_EDGES and bool(shapely.is_valid(area))


def _too_many(obj: AnnotationObject, crossings: int, limit: int) -> BadAnnotationError:
    return BadAnnotationError(
        f"{_named(obj)}: the outlines cross {crossings:,} times or more; the limit is {limit:,}. Hand-drawn outlines "
        "never do: simplify the outlines, or use fewer at once."
    )


def _too_close(obj: AnnotationObject, pairs: int) -> BadAnnotationError:
    return BadAnnotationError(
        f"{_named(obj)}: the outlines run so close together that their crossings cannot be counted: {pairs:,} pairs of "
        f"edges would have to be compared; the limit is {MAX_PAIRS:,} plus {MAX_PAIRS_PER_EDGE} per edge. Hand-drawn "
        "outlines never do this: simplify the outlines, or use fewer at once."
    )


def _named(obj: AnnotationObject) -> str:
    return obj.where if obj.class_name is None else f"{obj.where} (class {obj.class_name!r})"


def _edges(outlines: Sequence[AnnotationObject]) -> tuple[_Points, _Points, NDArray[np.int64]]:
    """Start and end of each edge, both (n, 2), and the number of its outline."""
    parts, outline_of_part = shapely.get_parts([obj.geometry for obj in outlines], return_index=True)
    is_polygon = shapely.get_type_id(parts) == shapely.GeometryType.POLYGON
    is_line = np.isin(shapely.get_type_id(parts), (shapely.GeometryType.LINESTRING, shapely.GeometryType.LINEARRING))
    rings, part_of_ring = shapely.get_rings(parts[is_polygon], return_index=True)
    lines = np.concatenate([rings, parts[is_line]])
    outline_of_line = np.concatenate([outline_of_part[is_polygon][part_of_ring], outline_of_part[is_line]])
    corners, line_of_corner = shapely.get_coordinates(lines, return_index=True)
    is_edge = line_of_corner[:-1] == line_of_corner[1:]
    is_edge &= (corners[:-1] != corners[1:]).any(1)
    owner = outline_of_line[line_of_corner[:-1]]
    return corners[:-1][is_edge], corners[1:][is_edge], owner[is_edge]


def _close_pairs(start: _Points, end: _Points) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Numbers of edges whose bounds overlap, each pair once, in chunks."""
    count = len(start)
    low, high = np.minimum(start, end), np.maximum(start, end)
    boxes = shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
    tree, at, step = shapely.STRtree(boxes), 0, max(1, _PAIRS_AT_ONCE // max(1, count))
    while at < count:
        one, other = tree.query(boxes[at : at + step])
        one += at
        yield one[one < other], other[one < other]
        at += step
        # More boxes per chunk where few are close, but at most a few times the memory of these pairs.
        most = max(_BOXES_AT_ONCE, 8 * _PAIRS_AT_ONCE // count)
        step = max(1, min(2 * step, step * _PAIRS_AT_ONCE // max(1, len(one)), most))


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
    """Sign of the triangle's area: the side of the line ab on which the point lies."""
    (abx, aby), (apx, apy) = (b - a).T, (point - a).T
    return np.asarray(np.sign(abx * apy - aby * apx))
