"""Affine transforms of the plane: fitted to pairs of points, inverted, and described in a person's terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadAnnotationError

Points = NDArray[np.float64]
"""(points, 2): x, y."""

MIN_SPREAD = 1e-3
"""Smallest ratio of the spread of points across to the spread along their main direction that fixes an affine map."""


@dataclass(frozen=True)
class Affine:
    """x' = a x + b y + c, y' = d x + e y + f. The frame of each side is the caller's."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.float64]) -> Affine:
        """From a (2, 3) or (3, 3) array."""
        return cls(*(float(value) for value in np.asarray(matrix)[:2].ravel()))

    @property
    def numbers(self) -> tuple[float, float, float, float, float, float]:
        return self.a, self.b, self.c, self.d, self.e, self.f

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The (3, 3) array."""
        return np.array([[self.a, self.b, self.c], [self.d, self.e, self.f], [0.0, 0.0, 1.0]])

    @property
    def determinant(self) -> float:
        return self.a * self.e - self.b * self.d

    def moved(self, points: Points) -> Points:
        """Points of the moving side on the fixed side."""
        linear = self.matrix[:2, :2]
        return np.asarray(np.asarray(points, np.float64) @ linear.T + (self.c, self.f), np.float64)

    def inverse(self) -> Affine:
        return Affine.of_matrix(np.asarray(np.linalg.inv(self.matrix), np.float64))

    def after(self, first: Affine) -> Affine:
        """The transform that does `first`, then this one."""
        return Affine.of_matrix(self.matrix @ first.matrix)

    def scaled(self, *, moving: float, fixed: float) -> Affine:
        """The same map in other units: `moving` and `fixed` are the new units per old unit of each side."""
        linear = self.matrix[:2, :2] * (fixed / moving)
        return Affine.of_matrix(np.column_stack([linear, (self.c * fixed, self.f * fixed)]))

    @property
    def is_mirrored(self) -> bool:
        return self.determinant < 0

    @property
    def degrees(self) -> float:
        """Clockwise turn on the screen, 0 to 360; of a mirrored transform, the turn after mirroring left and right."""
        a, b, d, e = self.a, self.b, self.d, self.e
        angle = math.atan2(d - b, a + e) if not self.is_mirrored else math.atan2(-d - b, e - a)
        return math.degrees(angle) % 360

    @property
    def scale(self) -> float:
        """Mean enlargement: the square root of the factor by which areas grow."""
        return math.sqrt(abs(self.determinant))

    @property
    def shear(self) -> float:
        """Ratio of the largest to the smallest enlargement, less 1."""
        largest, smallest = np.linalg.svd(self.matrix[:2, :2], compute_uv=False)
        return float(largest / smallest - 1) if smallest > 0 else math.inf


IDENTITY = Affine(1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def fit_similarity(moving: Points, fixed: Points, *, is_mirrored: bool = False) -> Affine:
    """Turn, shift, scale and optional mirroring that bring points closest to others, by least squares.

    Raises:
        BadAnnotationError: the moving points are all in one place.
    """
    source = np.asarray(moving, np.float64) * ((-1.0, 1.0) if is_mirrored else (1.0, 1.0))
    target = np.asarray(fixed, np.float64)
    middle, goal = source.mean(0), target.mean(0)
    from_, to = _complex(source - middle), _complex(target - goal)
    spread = float((np.abs(from_) ** 2).sum())
    if spread < 1e-12:
        raise BadAnnotationError("the points of one slide are all in one place: click places far apart.")
    turn = complex((to * from_.conj()).sum()) / spread
    linear = np.array([[turn.real, -turn.imag], [turn.imag, turn.real]])
    shift = goal - linear @ middle
    if is_mirrored:
        linear = linear @ np.diag([-1.0, 1.0])
    return Affine.of_matrix(np.column_stack([linear, shift]))


def fit_affine(moving: Points, fixed: Points) -> Affine:
    """The affine transform that brings points closest to others, by least squares.

    Raises:
        BadAnnotationError: fewer than three points, or points (nearly) on one line.
    """
    source, target = np.asarray(moving, np.float64), np.asarray(fixed, np.float64)
    if len(source) < 3:
        raise BadAnnotationError(f"{len(source)} pairs of points: an affine transform needs three.")
    for points in (source, target):
        along, across = np.linalg.svd(points - points.mean(0), compute_uv=False)[:2]
        if across <= MIN_SPREAD * along:
            raise BadAnnotationError("the points of one slide are on one line: choose one beside the line as well.")
    middle = source.mean(0)
    columns = np.column_stack([source - middle, np.ones(len(source))])
    solution = np.linalg.lstsq(columns, target, rcond=None)[0]
    linear, shift = solution[:2].T, solution[2] - solution[:2].T @ middle
    return Affine.of_matrix(np.column_stack([linear, shift]))


def distances(transform: Affine, moving: Points, fixed: Points) -> NDArray[np.float64]:
    """Distance of each moved point to its partner."""
    return np.asarray(np.linalg.norm(transform.moved(moving) - np.asarray(fixed, np.float64), axis=1), np.float64)


def as_points(pairs: Sequence[tuple[float, float]]) -> Points:
    return np.asarray(pairs, np.float64).reshape(-1, 2)


def _complex(points: Points) -> NDArray[np.complex128]:
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex128)
