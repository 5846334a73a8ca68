"""Tissue is what differs in colour from the slide's own background.

Saturation alone loses pale, DAB-negative tissue, and a fixed white loses grey backgrounds: so the background
colour is estimated per slide, and tissue is what lies further than a CIELAB distance from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.color import rgb2lab
from skimage.morphology import remove_small_holes, remove_small_objects

from pipeline.config import TissueConfig
from pipeline.slides.slide import Pixels

Mask = NDArray[np.bool_]

_BIN = 2.0
_MIN_LIGHTNESS = 55.0
_MAX_CHROMA = 14.0
"""Glass is light and nearly without colour, under every scanner's lamp."""
_MIN_SHARE = 0.002


@dataclass(frozen=True)
class Tissue:
    """Where tissue is, at `mpp` microns per cell; cell (0, 0) at the slide's top left corner."""

    mask_yx: Mask
    mpp: float
    background_lab: tuple[float, float, float]

    @property
    def fraction(self) -> float:
        return float(self.mask_yx.mean())


def find_tissue(pixels: Pixels, mpp: float, config: TissueConfig) -> Tissue:
    """Mask of the tissue in an overview.

    Args:
        pixels: the whole slide, uint8 (height, width, 3), at `mpp` microns per pixel.
    """
    lab = rgb2lab(cv2.GaussianBlur(pixels, (3, 3), 0)).astype(np.float32)
    background = background_colour(lab)
    distance = np.sqrt(((lab - np.asarray(background, np.float32)) ** 2).sum(-1))
    mask = _clean(distance > config.min_delta_e, mpp, config)
    return Tissue(mask, mpp, background)


def background_colour(lab: NDArray[np.float32]) -> tuple[float, float, float]:
    """CIELAB colour of the glass: the commonest one among those light and grey enough to be glass.

    A slide without glass in view has no such peak: then white.
    """
    flat = lab.reshape(-1, 3)
    chroma = np.hypot(flat[:, 1], flat[:, 2])
    light = flat[(flat[:, 0] > _MIN_LIGHTNESS) & (chroma < _MAX_CHROMA)]
    if len(light) < _MIN_SHARE * len(flat):
        return (100.0, 0.0, 0.0)
    lowest = light.min(0)
    bins = ((light - lowest) / _BIN).astype(int)
    counts = np.zeros(bins.max(0) + 1)
    np.add.at(counts, tuple(bins.T), 1)
    peak = np.unravel_index(ndimage.gaussian_filter(counts, 0.7).argmax(), counts.shape)
    centre = lowest + (np.asarray(peak) + 0.5) * _BIN
    near = light[np.linalg.norm(light - centre, axis=1) < 1.5 * _BIN]
    level, a, b = np.median(near, axis=0) if len(near) else centre
    return (float(level), float(a), float(b))


def _clean(mask: Mask, mpp: float, config: TissueConfig) -> Mask:
    cell_um2 = mpp * mpp
    # Specks go before gaps are closed: closing would join dust, or a slide's printed dots, into tissue.
    mask = remove_small_objects(mask, max_size=int(config.max_speck_um2 / cell_um2), connectivity=2)
    radius = round(config.close_um / 2 / mpp)
    if radius:
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
        closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, kernel, borderType=cv2.BORDER_REPLICATE)
        mask = closed.astype(bool)
    mask = remove_small_objects(mask, max_size=int(config.min_object_um2 / cell_um2))
    mask = remove_small_holes(mask, max_size=int(config.max_hole_um2 / cell_um2))
    return np.asarray(mask, bool)
