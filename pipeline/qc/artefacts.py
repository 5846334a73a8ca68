"""Pen marks, folds, and the edges of bubbles and coverslips, on an overview of about 8 µm per pixel.

Classical rules on colour, darkness and shape. Each function states its criteria; see
docs/reference/quality.md for how well they work and where they fail.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels

Mask = NDArray[np.bool_]
Image = NDArray[np.float32]

BAND_ROWS = 512
"""Colours are judged in bands, so that memory never holds a floating-point copy of a large overview."""

PEN_MIN_DENSITY = 0.35
"""Ink absorbs at least this much in its strongest channel (natural logarithm)."""
PEN_WIDTH_UM = 40.0
"""Strokes are wider than this; clumps of cells are not."""
PEN_MIN_UM2 = 40_000.0
BLUE_GREEN_RATIO = 1.15
"""Blue, violet and green ink absorb red more than green light by this factor; stained tissue does not."""
RED_MAX_RATIO, RED_MIN_RATIO, RED_MIN_DENSITY = 0.25, 0.70, 0.9
"""Red ink absorbs blue about as much as green, and hardly any red; eosin and most blood absorb less blue."""
BLACK_MIN_DENSITY, BLACK_MAX_SPREAD = 1.0, 0.30
"""Black ink absorbs all colours about equally."""

FOLD_SMOOTH_UM = 72.0
FOLD_MIN_UM2 = 15_000.0
FOLD_TIMES, FOLD_MIN_DENSITY = 2.0, 0.95
"""Folded tissue: how many times darker than the slide's typical tissue, its lightest spots included; and the least
density, which single layers (also of DAB, the brown of immunohistochemistry) seldom reach."""
FOLD_MIN_GAP_DENSITY = 0.06

EDGE_WIDTH_UM = 120.0
"""Lines wider than this are not refraction."""
EDGE_MIN_DENSITY, EDGE_MIN_RATIO = 0.3, 0.7
"""Least absorption of a line above both sides, and least ratio of its colours: refraction is grey, stains are not."""
EDGE_MIN_LENGTH_UM = 400.0
BUBBLE_MAX_UM2 = 16e6
"""Largest area that the edge of a bubble encloses; a larger one is the slide's frame."""


def find_artefacts(overview: Pixels, lightest: NDArray[np.uint8], tissue: Mask, mpp: float) -> dict[str, Mask]:
    """Masks of "pen", "fold" and "bubble", bool (rows, columns); see the three functions below."""
    pen = find_pen(overview, mpp)
    # Ink is dark too, and the smoothing of the search for folds spreads its darkness beyond the stroke's edge.
    near_pen = cv2.dilate(pen.astype(np.uint8), np.ones((_odd(FOLD_SMOOTH_UM / mpp),) * 2, np.uint8)) > 0
    folds = find_folds(overview, lightest, tissue, mpp) & ~near_pen
    return {"pen": pen, "fold": folds, "bubble": find_bubbles(overview, mpp)}


def find_pen(overview: Pixels, mpp: float) -> Mask:
    """Ink: saturated blue, violet or green, red unlike eosin, or black; wide, smooth and large.

    Args:
        overview: uint8 (rows, columns, 3), area means.
        mpp: microns per overview pixel.
    """
    ink = np.concatenate([_is_ink(overview[y : y + BAND_ROWS]) for y in range(0, len(overview), BAND_ROWS)])
    return _larger_than(_opened(ink, PEN_WIDTH_UM / mpp), PEN_MIN_UM2 / mpp**2)


def _is_ink(pixels: Pixels) -> Mask:
    red, green, blue = np.moveaxis(_density(pixels), -1, 0)
    strongest, weakest = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    blue_or_green = (red > BLUE_GREEN_RATIO * green) & (strongest > PEN_MIN_DENSITY)
    is_red = (blue > RED_MIN_RATIO * green) & (blue < 1.3 * green) & (red < RED_MAX_RATIO * green)
    black = (weakest > BLACK_MIN_DENSITY) & (strongest - weakest < BLACK_MAX_SPREAD * strongest)
    return np.asarray(blue_or_green | (is_red & (green > RED_MIN_DENSITY)) | black, bool)


def find_folds(overview: Pixels, lightest: NDArray[np.uint8], tissue: Mask, mpp: float) -> Mask:
    """Folded tissue: darker than the slide's typical tissue, and dark even between its cells.

    Dense tissue (lymphocytes, epidermis) is dark too, but light shows between its nuclei: so the mean density is
    judged together with that of the lightest spots, both relative to the slide's median. This works at half the
    overview's resolution: folds are large, and the overview may be, too.

    Args:
        lightest: uint8 (rows, columns), the lightest spot of each overview pixel, by its darkest channel.
        tissue: bool (rows, columns).
    """
    around = cv2.getStructuringElement(cv2.MORPH_RECT, (_odd(24.0 / mpp),) * 2)
    gaps = cv2.dilate(lightest, around)  # a light gap nearby speaks against a fold
    half_wh = (-(-overview.shape[1] // 2), -(-overview.shape[0] // 2))
    inside = cv2.resize(tissue.astype(np.uint8), half_wh, interpolation=cv2.INTER_NEAREST) > 0
    if not inside.any():
        return np.zeros_like(tissue)
    coarse, coarse_gaps = (
        np.asarray(cv2.resize(image, half_wh, interpolation=cv2.INTER_AREA), np.uint8) for image in (overview, gaps)
    )
    side = _odd(FOLD_SMOOTH_UM / (2 * mpp))
    density = cv2.blur(_density_mean(coarse), (side, side))
    gap_density = np.maximum(cv2.blur(_LOG_TABLE[coarse_gaps], (side, side)), 0)
    typical = max(float(np.median(density[inside])), 1e-3)
    typical_gap = max(float(np.median(gap_density[inside])), FOLD_MIN_GAP_DENSITY)
    times = np.sqrt(density / typical * gap_density / typical_gap)
    folded = ((times > FOLD_TIMES) & (density > FOLD_MIN_DENSITY)).astype(np.uint8)
    full = np.asarray(cv2.resize(folded, overview.shape[1::-1], interpolation=cv2.INTER_NEAREST), bool)
    return _larger_than(full & tissue, FOLD_MIN_UM2 / mpp**2)


def find_bubbles(overview: Pixels, mpp: float) -> Mask:
    """Edges of bubbles and coverslips, and the area that a closed edge surrounds.

    Refraction draws a line that is thin, long, dark, and equally so in all colours; a strand of tissue or a row of
    nuclei absorbs one colour more than another.
    """
    side = _odd(EDGE_WIDTH_UM / mpp)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    least = np.full(overview.shape[:2], 255, np.uint8)
    most = np.zeros(overview.shape[:2], np.uint8)
    for channel in range(3):
        density = _DENSITY_LEVELS[overview[..., channel]]
        above = np.asarray(cv2.morphologyEx(density, cv2.MORPH_TOPHAT, kernel), np.uint8)
        least, most = np.minimum(least, above), np.maximum(most, above)
    line = ((least > EDGE_MIN_DENSITY * LEVELS_PER_DENSITY) & (least > EDGE_MIN_RATIO * most)).astype(np.uint8)
    line = np.asarray(cv2.morphologyEx(line, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8)), np.uint8)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(line, connectivity=8)
    length_um = np.hypot(stats[:, cv2.CC_STAT_WIDTH], stats[:, cv2.CC_STAT_HEIGHT]) * mpp
    kept = length_um > EDGE_MIN_LENGTH_UM
    kept[0] = False
    edge = np.asarray(kept[labels], bool)
    del labels  # four bytes a pixel
    return edge | _surrounded(edge, BUBBLE_MAX_UM2 / mpp**2)


def _surrounded(edge: Mask, max_px: float) -> Mask:
    """Areas that an edge encloses, if they are small enough to be a bubble."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats((~edge).astype(np.uint8), connectivity=4)
    left, top, width, height, area = stats.T[:5]
    inner = (left > 0) & (top > 0) & (left + width < edge.shape[1]) & (top + height < edge.shape[0]) & (area <= max_px)
    inner[0] = False
    return np.asarray(inner[labels], bool)


_LOG_TABLE = -np.log((np.arange(256) + 1) / 256).astype(np.float32)
LEVELS_PER_DENSITY = 46.0
"""Optical densities of 0 to 5.5 as bytes: morphology on bytes is quick and small."""
_DENSITY_LEVELS = np.rint(_LOG_TABLE * LEVELS_PER_DENSITY).astype(np.uint8)


def _density(pixels: Pixels) -> Image:
    return np.asarray(_LOG_TABLE[pixels], np.float32)


def _density_mean(overview: Pixels) -> Image:
    bands = (_density(overview[y : y + BAND_ROWS]).mean(-1) for y in range(0, len(overview), BAND_ROWS))
    return np.concatenate(list(bands))


def _odd(side: float) -> int:
    return 2 * int(side / 2) + 1


def _opened(mask: Mask, width_px: float) -> Mask:
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (_odd(width_px),) * 2)
    return np.asarray(cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, kernel), bool)


def _larger_than(mask: Mask, min_px: float) -> Mask:
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    kept = stats[:, cv2.CC_STAT_AREA] >= min_px
    kept[0] = False
    return np.asarray(kept[labels], bool)
