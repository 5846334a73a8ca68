"""Places that look alike on two slides: SIFT features of their structure, matched both ways."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.registration.structure import Plane, Structure
from pipeline.registration.transform import Points

MAX_FEATURES = 5000
"""On each plane of a slide, the strongest."""
MAX_MATCHES = 2000
MAX_RATIO = 0.95
"""Of a match's distance to that of the second best; the best matches are used first."""
MOST_LARGER = 1.5
"""Ratio of the sizes of two features that may be the same, both in µm."""
_GREY, _CONTRAST = 128.0, 40.0
_ROWS = 1000


@dataclass(frozen=True)
class Features:
    """Features of one plane.

    Attributes:
        xy: positions, float64 (features, 2).
        degrees: directions.
        sizes: diameters in pixels.
        descriptors: float32 (features, 128), each of length 1.
    """

    xy: Points
    degrees: NDArray[np.float64]
    sizes: NDArray[np.float64]
    descriptors: NDArray[np.float32]

    def enlarged(self, factor: int) -> Features:
        """The same features in pixels `factor` times smaller."""
        return Features((self.xy + 0.5) * factor - 0.5, self.degrees, self.sizes * factor, self.descriptors)


@dataclass(frozen=True)
class Matches:
    """Pairs of places, best first: positions on both slides, and the turn from one to the other in degrees."""

    moving: Points
    fixed: Points
    degrees: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.moving)


def features_of(structure: Structure) -> list[Features]:
    """Features of each plane."""
    return [_features(plane, structure.tissue_yx) for plane in structure.planes]


def match_features(moving: list[Features], fixed: list[Features]) -> Matches:
    """Matches of all planes together, at most `MAX_MATCHES`."""
    found = [_match(one, other) for one, other in zip(moving, fixed, strict=True)]
    from_, to, turns, ratios = (np.concatenate(parts) for parts in zip(*found, strict=True))
    best = np.argsort(ratios, kind="stable")[:MAX_MATCHES]
    return Matches(from_[best], to[best], turns[best])


def _features(plane: Plane, tissue_yx: NDArray[np.bool_]) -> Features:
    grey = np.clip(_GREY + _CONTRAST * plane, 0, 255).astype(np.uint8)
    sift = cv2.SIFT.create(nfeatures=MAX_FEATURES, contrastThreshold=0.02)
    points, descriptors = sift.detectAndCompute(grey, tissue_yx.astype(np.uint8))
    if not points:
        return Features(np.empty((0, 2)), np.empty(0), np.empty(0), np.empty((0, 128), np.float32))
    rooted = np.sqrt(descriptors / np.maximum(descriptors.sum(1, keepdims=True), 1e-6))  # RootSIFT
    return Features(
        np.array([point.pt for point in points], np.float64),
        np.array([point.angle for point in points], np.float64),
        np.array([point.size for point in points], np.float64),
        rooted.astype(np.float32),
    )


def _match(one: Features, other: Features) -> tuple[NDArray[np.float64], ...]:
    """Positions, turns and ratios of mutual nearest neighbours."""
    if len(one.xy) < 2 or len(other.xy) < 2:
        return np.empty((0, 2)), np.empty((0, 2)), np.empty(0), np.empty(0)
    nearest, ratios, back = _nearest(one.descriptors, other.descriptors)
    index = np.arange(len(nearest))
    growth = other.sizes[nearest] / one.sizes
    kept = (back[nearest] == index) & (ratios < MAX_RATIO) & (growth < MOST_LARGER) & (growth > 1 / MOST_LARGER)
    chosen = index[kept]
    partners = nearest[kept]
    return one.xy[chosen], other.xy[partners], other.degrees[partners] - one.degrees[chosen], ratios[chosen]


def _nearest(
    one: NDArray[np.float32], other: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """For each of the first, the nearest of the others and the ratio to the second; for each other, its nearest."""
    nearest, ratios = np.empty(len(one), np.int64), np.empty(len(one))
    best_back, back = np.full(len(other), -np.inf, np.float32), np.zeros(len(other), np.int64)
    for start in range(0, len(one), _ROWS):
        likeness = one[start : start + _ROWS] @ other.T
        rows = np.arange(len(likeness))
        nearest[start : start + _ROWS] = likeness.argmax(1)
        column_best = likeness.argmax(0)
        values = likeness[column_best, np.arange(len(other))]
        back = np.where(values > best_back, column_best + start, back)
        best_back = np.maximum(best_back, values)
        first = likeness[rows, nearest[start : start + _ROWS]]
        likeness[rows, nearest[start : start + _ROWS]] = -1
        second = likeness.max(1)
        distance = np.sqrt(np.maximum(0, 2 - 2 * np.stack([first, second])))
        ratios[start : start + _ROWS] = distance[0] / np.maximum(distance[1], 1e-6)
    return nearest, ratios, back
