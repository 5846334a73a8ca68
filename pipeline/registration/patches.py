"""Small patches of one slide found again on the other, after a transform: they correct it, and they test it.

A wrong transform finds its patches at random offsets within the searched square; the right one finds them near its
middle. So the share of patches found there says how far to trust a transform, whatever suggested it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from pipeline.registration.structure import Plane, Structure
from pipeline.registration.transform import Affine, Points

PATCH_PX = 40
USUAL_REACH_PX, MAX_REACH_PX, REACH_UM = 20, 40, 160.0
"""Patches are searched this far around where the transform expects them: in pixels of the comparison, and farther on
fine images, where the same bend of the tissue is more pixels."""
NEAR_SHARE = 0.25
"""Of the reach: patches found within this distance agree with the transform."""
MAX_PATCHES = 600
_MIN_TISSUE = 0.6
_MIN_STD = 0.15


@dataclass(frozen=True)
class Patches:
    """Patches found again.

    Attributes:
        moving: centres in pixels of the moving slide.
        expected: where the transform puts them on the fixed slide.
        offsets: from there to where they look alike most, in pixels of the fixed slide.
        likeness: correlation there, -1 to 1.
        reach_px: how far they were searched.
    """

    moving: Points
    expected: Points
    offsets: Points
    likeness: NDArray[np.float64]
    reach_px: int

    def __len__(self) -> int:
        return len(self.moving)

    @property
    def distances_px(self) -> NDArray[np.float64]:
        return np.asarray(np.linalg.norm(self.offsets, axis=1), np.float64)

    @property
    def near_px(self) -> float:
        return NEAR_SHARE * self.reach_px

    @property
    def num_near(self) -> int:
        """Number of the patches that agree with the transform."""
        return int((self.distances_px <= self.near_px).sum())

    @property
    def share_near(self) -> float:
        return self.num_near / len(self) if len(self) else 0.0

    @property
    def log10_chance(self) -> float:
        """Logarithm of the probability that a wrong transform, which finds patches anywhere, does as well."""
        chance = math.pi * (self.near_px + 0.5) ** 2 / (2 * self.reach_px + 1) ** 2
        near = self.num_near
        return float(binom.logsf(near - 1, len(self), chance) / math.log(10)) if near else 0.0

    def chosen(self, which: NDArray[np.bool_]) -> Patches:
        return Patches(
            self.moving[which], self.expected[which], self.offsets[which], self.likeness[which], self.reach_px
        )


def reach_at(mpp: float) -> int:
    """How far patches are searched on images of `mpp` µm per pixel, in pixels."""
    return min(MAX_REACH_PX, max(USUAL_REACH_PX, round(REACH_UM / mpp)))


def find_patches(moving: Structure, fixed: Structure, transform: Affine, reach_px: int) -> Patches:
    """Find patches of the moving slide, laid out on a grid of the fixed slide, within `reach_px`."""
    height, width = fixed.dense.shape
    matrix = transform.matrix[:2]
    warped = [_warped(plane, matrix, (width, height)) for plane in moving.planes]
    tissue = _warped(moving.tissue_yx.astype(np.float32), matrix, (width, height))
    corners = _corners(tissue, fixed.tissue_yx, reach_px)
    found = [one for corner in corners if (one := _find(warped, fixed.planes, corner, reach_px)) is not None]
    if not found:
        return Patches(np.empty((0, 2)), np.empty((0, 2)), np.empty((0, 2)), np.empty(0), reach_px)
    expected = np.array([(x, y) for x, y, *_ in found], np.float64)
    offsets = np.array([(dx, dy) for _, _, dx, dy, _ in found], np.float64)
    likeness = np.array([one[-1] for one in found])
    return Patches(transform.inverse().moved(expected), expected, offsets, likeness, reach_px)


def _warped(plane: Plane, matrix: NDArray[np.float64], size_wh: tuple[int, int]) -> Plane:
    return np.asarray(cv2.warpAffine(plane, matrix, size_wh), np.float32)


def _corners(tissue: Plane, fixed_yx: NDArray[np.bool_], reach_px: int) -> list[tuple[int, int]]:
    """Top left corners of patches with tissue on both slides, evenly spread."""
    height, width = tissue.shape
    xs = np.arange(reach_px, width - PATCH_PX - reach_px, PATCH_PX)
    ys = np.arange(reach_px, height - PATCH_PX - reach_px, PATCH_PX)
    if not len(xs) or not len(ys):
        return []
    sums = [cv2.integral(plane.astype(np.float32)) for plane in (tissue, fixed_yx)]
    shares = []
    for total in sums:
        part = total[np.ix_(ys + PATCH_PX, xs + PATCH_PX)] - total[np.ix_(ys, xs + PATCH_PX)]
        shares.append((part - total[np.ix_(ys + PATCH_PX, xs)] + total[np.ix_(ys, xs)]) / PATCH_PX**2)
    rows, columns = np.nonzero((shares[0] >= _MIN_TISSUE) & (shares[1] >= _MIN_TISSUE / 2))
    step = max(1, math.ceil(len(rows) / MAX_PATCHES))
    return [(int(xs[column]), int(ys[row])) for row, column in zip(rows[::step], columns[::step], strict=True)]


def _find(
    warped: list[Plane], fixed: tuple[Plane, ...], corner: tuple[int, int], reach_px: int
) -> tuple[float, float, float, float, float] | None:
    """Centre of a patch, offset and likeness; None where it is without structure."""
    x, y = corner
    total: NDArray[np.float32] | None = None
    for plane, other in zip(warped, fixed, strict=True):
        patch = plane[y : y + PATCH_PX, x : x + PATCH_PX]
        square = other[y - reach_px : y + PATCH_PX + reach_px, x - reach_px : x + PATCH_PX + reach_px]
        if patch.std() < _MIN_STD or square.std() < _MIN_STD:
            continue
        likeness = np.asarray(np.nan_to_num(cv2.matchTemplate(square, patch, cv2.TM_CCOEFF_NORMED)), np.float32)
        total = likeness if total is None else np.maximum(total, likeness)
    if total is None:
        return None
    row, column = divmod(int(total.argmax()), total.shape[1])
    dx, dy = column + _between(total[row], column), row + _between(total[:, column], row)
    middle = PATCH_PX / 2 - 0.5
    return x + middle, y + middle, dx - reach_px, dy - reach_px, float(total[row, column])


def _between(values: NDArray[np.float32], at: int) -> float:
    """Offset of a peak between samples, from the parabola through its neighbours."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, peak, after = (float(value) for value in values[at - 1 : at + 2])
    curve = before - 2 * peak + after
    return 0.0 if curve >= 0 else float(np.clip((before - after) / (2 * curve), -0.5, 0.5))
