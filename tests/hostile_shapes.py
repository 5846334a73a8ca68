"""Outlines that cost far more to process than to send: families of any size, in a box of level-0 pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Ring = list[list[float]]
Areas = list[dict[str, Any]]
"""GeoJSON geometries."""


def polygon(*rings: Ring) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]] for ring in rings]}


def _scaled(points: np.ndarray, side: float) -> Ring:
    low, high = points.min(0), points.max(0)
    return np.round(1 + (points - low) / (high - low) * (side - 2), 2).tolist()


def comb(corners: int, side: float, *, is_upright: bool = True) -> Ring:
    """Teeth as long as the box: valid, and every tooth crosses another comb."""
    teeth = max(2, corners // 4)
    x = np.linspace(0, 1, 2 * teeth + 1)
    steps = [((x[2 * i], 1), (x[2 * i + 1], 1), (x[2 * i + 1], 0.01), (x[2 * i + 2], 0.01)) for i in range(teeth)]
    points = np.array([(0, 0), *(point for step in steps for point in step), (1, 0)])
    return _scaled(points if is_upright else points[:, ::-1], side)


def star(corners: int, side: float) -> Ring:
    """Every edge crosses every other."""
    count = corners // 2 * 2 + 1
    angles = 2 * np.pi * np.arange(count) * (count // 2) / count
    return _scaled(np.stack([np.cos(angles), np.sin(angles)], 1), side)


def spiral(corners: int, side: float) -> Ring:
    """A valid spiral band, which a diagonal cuts in hundreds of places."""
    t = np.linspace(0.02, 1, corners // 2)
    angles = t * 2 * np.pi * max(3, corners // 300)
    outer = np.stack([t * np.cos(angles), t * np.sin(angles)], 1)
    return _scaled(np.concatenate([outer, outer[::-1] * 0.999]), side)


def diagonals(corners: int, side: float) -> Ring:
    """A valid zigzag whose edges have overlapping bounding boxes."""
    t = np.linspace(0, 1, corners // 2)
    far = np.where(np.arange(len(t)) % 2, t + 1, t)
    return _scaled(np.concatenate([np.stack([t, far], 1), np.stack([t, far - 1e-4], 1)[::-1]]), side)


def weave(corners: int, side: float) -> Ring:
    """n vertical and n horizontal lines in one stroke: n × n crossings."""
    n = max(2, corners // 4)
    at = (np.arange(n) + 0.5) / n
    ends = np.where(np.arange(2 * n) // 2 % 2 == np.arange(2 * n) % 2, 0.0, 1.0)
    upright, level = np.stack([np.repeat(at, 2), ends], 1), np.stack([ends, np.repeat(at, 2)], 1)
    return _scaled(np.concatenate([upright, level]), side)


def fan(corners: int, side: float) -> Ring:
    """Petals that share one corner."""
    return _scaled(np.array([(0, 0), *((1, i / corners) if i % 2 else (0, 0) for i in range(corners))]), side)


def to_and_fro(corners: int, side: float) -> Ring:
    """One line traversed again and again."""
    return _scaled(np.array([(0, 1), *((i if i % 2 else corners - i, 0) for i in range(corners))], float), side)


def walk(corners: int, side: float) -> Ring:
    """A random walk."""
    return _scaled(np.random.default_rng(corners).integers(-50, 51, (corners, 2)).cumsum(0).astype(float), side)


RINGS: Mapping[str, Callable[[int, float], Ring]] = {
    "a comb": comb, "a star": star, "a spiral": spiral, "a zigzag": diagonals, "a weave": weave, "a fan": fan,
    "a line run along": to_and_fro, "a random walk": walk,
}  # fmt: skip


def tiny_holes(corners: int, side: float) -> Areas:
    """A sieve."""
    count = max(2, math.isqrt(corners // 5))
    step = (side - 4) / count
    holes = [
        [[2 + x * step, 2 + y * step], [2 + x * step, 2 + y * step + step / 9], [2 + x * step + step / 9, 2 + y * step]]
        for x in range(count)
        for y in range(count)
    ]
    return [polygon([[1, 1], [side - 1, 1], [side - 1, side - 1], [1, side - 1]], *holes)]


def one_square_again_and_again(corners: int, side: float) -> Areas:
    """Coincident edges."""
    return [polygon([[1, 1], [side - 1, 1], [side - 1, side - 1], [1, side - 1]])] * max(2, corners // 50)


def squares_in_each_other(corners: int, side: float) -> Areas:
    count = max(2, corners // 50)
    edges = np.linspace(1, side / 2 - 1, count)
    return [polygon([[e, e], [side - e, e], [side - e, side - e], [e, side - e]]) for e in edges.tolist()]


def many_stars(corners: int, side: float) -> Areas:
    """Stars that cross themselves less often than allowed each, but far more often in total."""
    return [polygon(star(181, side))] * max(2, corners // 181)


def crossed_combs(corners: int, side: float) -> Areas:
    return [polygon(comb(corners // 2, side)), polygon(comb(corners // 2, side, is_upright=False))]


def huge_coordinates(corners: int, side: float) -> Areas:
    """Coordinates so large that no fraction is left."""
    return [polygon([[x + 9e8, y + 9e8] for x, y in star(corners, side)])] * 2


MANY: Mapping[str, Callable[[int, float], Areas]] = {
    "tiny holes": tiny_holes, "one square again and again": one_square_again_and_again,
    "squares in each other": squares_in_each_other, "many stars": many_stars, "crossed combs": crossed_combs,
    "huge coordinates": huge_coordinates,
}  # fmt: skip


def areas(family: str, corners: int, side: float) -> Areas:
    """Two or more areas of a family."""
    return MANY[family](corners, side) if family in MANY else [polygon(RINGS[family](corners, side))] * 2


FAMILIES = (*RINGS, *MANY)
