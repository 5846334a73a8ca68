"""Detection of tissue: whatever differs in colour from the slide's own background.

Saturation alone loses pale, DAB-negative tissue, and a fixed white loses grey backgrounds: so the background
colour is estimated per slide, and tissue is whatever is further than a CIELAB distance from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels
from pipeline.settings.config import TissueConfig
from pipeline.store.layers.damaged import damaged_cells
from pipeline.store.reading.array_reader import ArrayReader

Mask = NDArray[np.bool_]

_BIN = 2.0
_MIN_LIGHTNESS = 55.0
_MAX_CHROMA = 14.0
"""Glass is light and nearly without colour, under every scanner's lamp."""
_MIN_SHARE = 0.002
_WHITE_LIGHTNESS, _WHITE_CHROMA = 75.0, 10.0
_NEARLY_ALL, _NO_GLASS, _COLOURED = 0.85, 0.001, 18.0
"""Measured on whole slides: in right colours at least 48 % are grey-white, or the glass is grey and the chroma of the
lightest tenth 2; with Y, Cb, Cr shown as R, G, B or the reverse at most 0.02 % are, and the chroma is at least 22."""
_BACKGROUND_SAMPLE = 2**18
_BAND_ROWS = 64


@dataclass(frozen=True)
class Tissue:
    """Mask of tissue, at `mpp` microns per cell; cell (0, 0) at the slide's top left corner."""

    mask_yx: Mask
    mpp: float
    background_lab: tuple[float, float, float]
    grey_white_share: float
    """Share of the overview's pixels that are light and colourless, like glass."""
    lightest_chroma: float
    """Median CIELAB chroma of its lightest tenth, which includes the glass under any lamp."""

    @property
    def fraction(self) -> float:
        return float(self.mask_yx.mean())

    @property
    def warning(self) -> str | None:
        """Clause on what is implausible about the whole; it follows "slide S-1: "."""
        has_glass = self.fraction <= _NEARLY_ALL and self.lightest_chroma < _COLOURED
        if has_glass or self.grey_white_share >= _NO_GLASS:
            return None
        return (
            f"{self.fraction:.1%} of it would be tissue, and none of it is grey-white like glass; unless it was "
            "cropped from tissue, its colours are wrong: look at its thumbnail"
        )


def overview_downsample(mpp0: float, config: TissueConfig) -> float:
    """Level-0 pixels along a cell of the mask."""
    return max(1.0, config.mpp / mpp0)


def tissue_of_slide(
    level: ArrayReader,
    size_wh_px0: tuple[int, int],
    mpp0: float,
    config: TissueConfig,
    damaged: tuple[NDArray[np.uint8], int] | None = None,
) -> Tissue:
    """The tissue of a stored slide.

    Args:
        level: the coarsest that is at least as fine as the mask.
        damaged: mask (y, x) of what the slide lost, and level-0 pixels along its cells; tissue is never found there.
    """
    downsample = overview_downsample(mpp0, config)
    width_px, height_px = (max(1, round(side_px / downsample)) for side_px in size_wh_px0)
    lost_yx = None if damaged is None else damaged_cells(*damaged, (height_px, width_px), downsample)
    return find_tissue(level.read_whole(width_px, height_px), downsample * mpp0, config, lost_yx)


def find_tissue(pixels: Pixels, mpp: float, config: TissueConfig, lost_yx: Mask | None = None) -> Tissue:
    """Mask of the tissue in an overview.

    Args:
        pixels: the whole slide, uint8 (height, width, 3), at `mpp` microns per pixel.
        lost_yx: cells that are never tissue, and are left out of the background's colour.
    """
    blurred: Pixels = np.asarray(cv2.GaussianBlur(pixels, (3, 3), 0), np.uint8)
    sample_lab = to_lab(_background_sample(blurred, lost_yx))
    background, lightest = background_colour(sample_lab), _lightest(sample_lab)
    mask = np.empty(blurred.shape[:2], bool)
    for top in range(0, len(blurred), _BAND_ROWS):
        distance = to_lab(blurred[top : top + _BAND_ROWS]) - np.asarray(background, np.float32)
        np.multiply(distance, distance, out=distance)
        mask[top : top + _BAND_ROWS] = distance[..., 0] + distance[..., 1] + distance[..., 2] > config.min_delta_e**2
    if lost_yx is None:
        return Tissue(_clean(mask, mpp, config), mpp, background, *lightest)
    return Tissue(_clean(mask & ~lost_yx, mpp, config) & ~lost_yx, mpp, background, *lightest)


def _background_sample(pixels: Pixels, lost_yx: Mask | None) -> Pixels:
    """Pixels at regular distances, (rows, columns, 3); or those that are not lost, in one row."""
    step = max(1, int(np.sqrt(pixels.shape[0] * pixels.shape[1] / _BACKGROUND_SAMPLE)))
    if lost_yx is None or lost_yx.all():
        return np.ascontiguousarray(pixels[::step, ::step])
    kept = pixels[~lost_yx]
    return np.ascontiguousarray(kept[:: max(1, len(kept) // _BACKGROUND_SAMPLE)][None])


def to_lab(pixels: Pixels) -> NDArray[np.float32]:
    """CIELAB (D65) of sRGB pixels, float32 of the same shape."""
    scaled = np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)
    return np.asarray(cv2.cvtColor(scaled, cv2.COLOR_RGB2LAB, scaled), np.float32)


def background_colour(lab: NDArray[np.float32]) -> tuple[float, float, float]:
    """CIELAB colour of the glass: the most common one among those light and grey enough to be glass.

    White for a slide without glass in view, which has no such peak.
    """
    flat = lab.reshape(-1, 3)
    chroma = np.hypot(flat[:, 1], flat[:, 2])
    light = flat[(flat[:, 0] > _MIN_LIGHTNESS) & (chroma < _MAX_CHROMA)]
    if len(light) < _MIN_SHARE * len(flat):
        return (100.0, 0.0, 0.0)
    lowest = light.min(0)
    bins = ((light - lowest) / _BIN).astype(int)
    shape = tuple(bins.max(0) + 1)
    counts = np.bincount(np.ravel_multi_index(tuple(bins.T), shape), minlength=int(np.prod(shape))).reshape(shape)
    peak = np.unravel_index(_smoothed(counts).argmax(), shape)
    centre = lowest + (np.asarray(peak) + 0.5) * _BIN
    near = light[np.linalg.norm(light - centre, axis=1) < 1.5 * _BIN]
    level, a, b = np.median(near, axis=0) if len(near) else centre
    return (float(level), float(a), float(b))


def _lightest(lab: NDArray[np.float32]) -> tuple[float, float]:
    """Share of grey-white pixels, and the median chroma of the lightest tenth."""
    flat = lab.reshape(-1, 3)
    if not len(flat):
        return 0.0, 0.0
    lightness, chroma = flat[:, 0], np.hypot(flat[:, 1], flat[:, 2])
    is_grey_white = (lightness > _WHITE_LIGHTNESS) & (chroma < _WHITE_CHROMA)
    return float(is_grey_white.mean()), float(np.median(chroma[lightness >= np.quantile(lightness, 0.9)]))


def _smoothed(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Counts smoothed by a Gaussian of 0.7 bins along every axis."""
    kernel = np.exp(-0.5 * (np.arange(-3, 4) / 0.7) ** 2)
    smooth = np.pad(counts.astype(np.float64), 3, mode="reflect" if min(counts.shape) > 3 else "edge")
    for axis in range(counts.ndim):
        smooth = np.apply_along_axis(np.convolve, axis, smooth, kernel / kernel.sum(), "valid")
    return smooth


def _clean(mask: Mask, mpp: float, config: TissueConfig) -> Mask:
    cell_um2 = mpp * mpp
    # Specks go before gaps are closed: closing would join dust, or a slide's printed dots, into tissue.
    mask = _without_small(mask, int(config.max_speck_um2 / cell_um2), connectivity=8)
    radius = round(config.close_um / 2 / mpp)
    if radius:
        kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
        closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, kernel, borderType=cv2.BORDER_REPLICATE)
        mask = closed.astype(bool)
    mask = _without_small(mask, int(config.min_object_um2 / cell_um2), connectivity=4)
    return ~_without_small(~mask, int(config.max_hole_um2 / cell_um2), connectivity=4)


def _without_small(mask: Mask, max_cells: int, *, connectivity: int) -> Mask:
    """The mask without connected parts of up to `max_cells` cells."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=connectivity)
    is_kept = stats[:, cv2.CC_STAT_AREA] > max_cells
    is_kept[0] = False  # the background
    return np.asarray(is_kept[labels])
