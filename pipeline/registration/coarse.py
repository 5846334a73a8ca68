"""Every turn tried at low resolution: suggestions where features are too few, and rivals where there are enough."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.registration.structure import Plane, Structure
from pipeline.registration.transform import Affine

STEP_DEGREES = 6.0
"""The correlation of a turn falls to half within about this much."""
SIDE_PX = 192
"""Longest side of the images that are turned."""


def search_turns(moving: Structure, fixed: Structure, most: int) -> list[Affine]:
    """The `most` turns and shifts at which structure and outline correlate best; the moving slide is not mirrored."""
    longest = max(*moving.dense.shape, *fixed.dense.shape)
    scale = min(1.0, SIDE_PX / longest)
    one, other = _reduced(moving, scale), _reduced(fixed, scale)
    side = 2 * SIDE_PX
    spectra = [np.fft.rfft2(plane, (side, side)) for plane in other]
    found: list[tuple[float, Affine]] = []
    for degrees in np.arange(0.0, 360.0, STEP_DEGREES):
        turn = _turned(one[0].shape, float(degrees), side // 2)
        planes = [cv2.warpAffine(plane, turn.matrix[:2], (side // 2, side // 2)) for plane in one]
        likeness = np.zeros((side, side))
        for plane, spectrum in zip(planes, spectra, strict=True):
            likeness += np.fft.irfft2(spectrum * np.fft.rfft2(plane, (side, side)).conj(), (side, side))
        row, column = divmod(int(likeness.argmax()), side)
        shift_x, shift_y = ((at + side // 2) % side - side // 2 for at in (column, row))
        shift = Affine(1, 0, shift_x, 0, 1, shift_y)
        found.append((float(likeness.max()), shift.after(turn)))
    found.sort(key=lambda one: -one[0])
    return [transform.scaled(moving=1 / scale, fixed=1 / scale) for _, transform in found[:most]]


def _reduced(structure: Structure, scale: float) -> list[Plane]:
    """Structure and outline, each of energy 1."""
    height, width = structure.dense.shape
    size_wh = max(8, round(width * scale)), max(8, round(height * scale))
    tissue = structure.tissue_yx.astype(np.float32)
    planes = [
        np.asarray(cv2.resize(plane, size_wh, interpolation=cv2.INTER_AREA), np.float32)
        for plane in (structure.dense, tissue)
    ]
    planes[1] -= planes[1].mean()
    return [plane / max(float(np.linalg.norm(plane)), 1e-6) for plane in planes]


def _turned(shape_yx: tuple[int, ...], degrees: float, side: int) -> Affine:
    """A turn of an image about its middle, which goes to the middle of a square."""
    radians = np.radians(degrees)
    cos, sin = float(np.cos(radians)), float(np.sin(radians))
    x, y, middle = (shape_yx[1] - 1) / 2, (shape_yx[0] - 1) / 2, (side - 1) / 2
    return Affine(cos, -sin, middle - cos * x + sin * y, sin, cos, middle - sin * x - cos * y)


def dice(moving_yx: NDArray[np.bool_], fixed_yx: NDArray[np.bool_], transform: Affine) -> float:
    """Overlap of two tissue masks after the transform, 0 to 1."""
    height, width = fixed_yx.shape
    warped = cv2.warpAffine(moving_yx.astype(np.uint8), transform.matrix[:2], (width, height)) > 0
    total = float(warped.sum() + fixed_yx.sum())
    return 2 * float((warped & fixed_yx).sum()) / total if total else 0.0
