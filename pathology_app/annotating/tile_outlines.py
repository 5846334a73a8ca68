"""Rings clipped to a tile and thinned to its pixels, in time proportional to their corners.

GEOS's own clipping and simplification take seconds for one comb of 50,000 corners; a page requests dozens of tiles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


MAX_RING_CORNERS = 65_000
"""A tile stores the number of a ring's corners in 16 bits."""


class Rings(NamedTuple):
    """Closed rings, one after another, without the corner that closes them.

    Attributes:
        corners: float64 (n, 2).
        ring_of: the ring of each corner, ascending.
    """

    corners: NDArray[np.float64]
    ring_of: NDArray[np.intp]


def opened(corners: NDArray[np.float64], ring_of: NDArray[np.intp]) -> Rings:
    """Rings without their last corner, which repeats the first."""
    if not len(corners):
        return Rings(corners, ring_of)
    is_last = np.append(ring_of[1:] != ring_of[:-1], True)
    return Rings(corners[~is_last], ring_of[~is_last])


def closed(rings: Rings) -> Rings:
    """The opposite of `opened`."""
    if not len(rings.corners):
        return rings
    starts = np.flatnonzero(np.append(True, rings.ring_of[1:] != rings.ring_of[:-1]))
    ends = np.append(starts[1:], len(rings.corners))
    return Rings(
        np.insert(rings.corners, ends, rings.corners[starts], axis=0),
        np.insert(rings.ring_of, ends, rings.ring_of[starts]),
    )


def clipped(rings: Rings, box: Box) -> Rings:
    """Rings clipped to a box, after Sutherland and Hodgman: one cut into several pieces stays one ring, whose edges
    between them run along the box."""
    left, top, right, bottom = box
    for axis, sign, edge in ((0, 1, left), (0, -1, right), (1, 1, top), (1, -1, bottom)):
        rings = _beyond(rings, axis, sign, edge)
    return rings


def _beyond(rings: Rings, axis: int, sign: int, edge: float) -> Rings:
    corners, ring_of = rings
    depth = sign * (corners[:, axis] - edge)
    if not len(corners) or (depth >= 0).all():
        return rings
    after = _next(ring_of)
    is_in = depth >= 0
    crosses = is_in != is_in[after]
    share = np.zeros(len(corners))
    share[crosses] = depth[crosses] / (depth[crosses] - depth[after[crosses]])
    cut = corners + share[:, None] * (corners[after] - corners)
    cut[crosses, axis] = edge
    kept = np.stack([is_in, crosses], 1).ravel()
    return Rings(np.stack([corners, cut], 1).reshape(-1, 2)[kept], np.repeat(ring_of, 2)[kept])


def _next(ring_of: NDArray[np.intp]) -> NDArray[np.intp]:
    """The index of the next corner of each, around its ring."""
    after = np.arange(1, len(ring_of) + 1)
    starts = np.flatnonzero(np.append(True, ring_of[1:] != ring_of[:-1]))
    after[np.append(starts[1:], len(ring_of)) - 1] = starts
    return after


def thinned(rings: Rings, cell: float) -> Rings:
    """Rings with only the first of consecutive corners in one square cell; those with fewer than three are left out.

    A ring is cut off after `MAX_RING_CORNERS`: only one that zigzags across the tile has that many.
    """
    corners, ring_of = rings
    if not len(corners):
        return rings
    cells = np.floor(corners / cell).astype(np.int64)
    same = (cells[1:] == cells[:-1]).all(1) & (ring_of[1:] == ring_of[:-1])
    kept = np.append(True, ~same)
    corners, ring_of = corners[kept], ring_of[kept]
    counts = np.bincount(ring_of)
    place = np.arange(len(ring_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = (counts[ring_of] >= 3) & (place < MAX_RING_CORNERS)
    return Rings(corners[kept], ring_of[kept])
