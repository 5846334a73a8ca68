"""Structure of tissue without its stain: densities made even over the slide, so that two stains can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.registration.thumbnail import Thumbnail

EVEN_PX = 24.0
"""Sigma of the surroundings from which a pixel's density differs, in pixels of the comparison."""
SMOOTH_PX = 1.0
LEAST_STD = 0.02
"""Optical density below which differences are noise of the scanner."""
MOST = 3.0
_BRIGHT = 240.0
_REDUCED = 4

Plane = NDArray[np.float32]


@dataclass(frozen=True)
class Structure:
    """A slide's structure at one resolution; 0 outside the tissue.

    Attributes:
        dense: of all light, whatever its colour.
        red: of red light, which haematoxylin absorbs and most counterstains let pass.
    """

    dense: Plane
    red: Plane
    tissue_yx: NDArray[np.bool_]

    @property
    def planes(self) -> tuple[Plane, Plane]:
        return self.dense, self.red

    def flipped(self) -> Structure:
        """Mirrored left and right."""
        dense, red = (np.ascontiguousarray(plane[:, ::-1]) for plane in self.planes)
        return Structure(dense, red, np.ascontiguousarray(self.tissue_yx[:, ::-1]))


def structure_of(slide: Thumbnail, shrink: int = 1) -> Structure:
    """A slide's structure, `shrink` times coarser than the thumbnail."""
    pixels, tissue_yx = slide.pixels, slide.tissue_yx
    if shrink > 1:
        size_wh = max(1, pixels.shape[1] // shrink), max(1, pixels.shape[0] // shrink)
        height, width = size_wh[1] * shrink, size_wh[0] * shrink
        pixels = np.asarray(cv2.resize(pixels[:height, :width], size_wh, interpolation=cv2.INTER_AREA), np.uint8)
        share = cv2.resize(tissue_yx[:height, :width].astype(np.float32), size_wh, interpolation=cv2.INTER_AREA)
        tissue_yx = np.asarray(share >= 0.5, np.bool_)
    density = _density(pixels, tissue_yx)
    dense = _evened(density.mean(-1), tissue_yx)
    return Structure(dense, _evened(np.ascontiguousarray(density[..., 0]), tissue_yx), tissue_yx)


def _density(pixels: NDArray[np.uint8], tissue_yx: NDArray[np.bool_]) -> Plane:
    """Optical density of each channel relative to the slide's own glass."""
    glass = pixels[~tissue_yx]
    light = np.full(3, _BRIGHT)
    if len(glass) >= 1000:
        light = np.clip(np.median(glass, axis=0), 128, 255)
    return np.asarray(np.log(light + 1) - np.log(pixels.astype(np.float32) + 1), np.float32)


def _evened(density_yx: NDArray[np.float32], tissue_yx: NDArray[np.bool_]) -> Plane:
    """Difference from the surrounding tissue, in its standard deviations."""
    inside = tissue_yx.astype(np.float32)
    plane = cv2.GaussianBlur(density_yx.astype(np.float32), (0, 0), SMOOTH_PX)
    weight = _surroundings(inside) + np.float32(1e-6)
    difference = plane - _surroundings(plane * inside) / weight
    square = np.maximum(_surroundings(difference**2 * inside), 0) / weight
    evened = difference / np.sqrt(square + np.float32(LEAST_STD**2))
    return np.asarray(np.clip(evened, -MOST, MOST) * inside, np.float32)


def _surroundings(plane: Plane) -> Plane:
    """Weighted mean around each pixel; computed on a quarter of the size, since it is smooth."""
    height, width = plane.shape
    small_wh = max(1, width // _REDUCED), max(1, height // _REDUCED)
    small = cv2.resize(plane, small_wh, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), EVEN_PX / _REDUCED, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR), np.float32)
