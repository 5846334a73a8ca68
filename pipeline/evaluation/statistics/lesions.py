"""Lesions of a slide, derived from annotated areas as in CAMELYON16's evaluation.

The annotated areas become a mask near 7.8 µm/px (0.243 µm · 2⁵, the level of the challenge); the mask is grown by
75 µm ÷ 2 (75 µm is about five tumour cells), holes are filled, and areas that touch, even at a corner, are one lesion.
Lesions whose longer axis is below 275 µm are isolated tumour cells (200 µm, plus the 75 µm they have grown by).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy import ndimage
from shapely.geometry.base import BaseGeometry
from skimage.measure import label, regionprops

from pipeline.errors import BadAnnotationError

EVALUATION_MPP = 0.243 * 2**5
GROW_UM = 75.0
ISOLATED_UM = 275.0
POINTS_AT_ONCE = 2**20
MAX_MASK_PX = 2**26
"""Limit of a mask: a slide of 60 × 60 mm. More takes gigabytes."""


@dataclass(frozen=True)
class Lesions:
    """A slide's lesions, numbered from 1."""

    number_yx: NDArray[np.int32]
    """0 outside every lesion."""
    downsample: int
    """Level-0 pixels per pixel of the mask, a power of two."""
    count: int
    isolated: tuple[int, ...]
    """Numbers of the lesions that are isolated tumour cells."""

    def at(self, x_px0: NDArray[np.float64], y_px0: NDArray[np.float64]) -> NDArray[np.int64]:
        """The lesion at each position; 0: none. Positions must be on the slide."""
        rows, columns = (np.asarray(v // self.downsample, np.int64) for v in (y_px0, x_px0))
        height, width = self.number_yx.shape
        inside = np.minimum(rows, height - 1), np.minimum(columns, width - 1)
        return np.asarray(self.number_yx[inside], np.int64)


def evaluation_downsample(mpp0: float) -> int:
    """The power of two that brings a slide nearest to the challenge's 7.8 µm/px; 1 for a coarser slide."""
    return int(2 ** max(0, round(float(np.log2(EVALUATION_MPP / mpp0)))))


def lesions_of(areas: Sequence[BaseGeometry], size_wh_px0: tuple[int, int], mpp0: float) -> Lesions | None:
    """The lesions formed by annotated areas (level-0 pixels); None if there are no areas.

    Raises:
        BadAnnotationError: the slide's stated size is impossible.
    """
    if not areas:
        return None
    downsample = evaluation_downsample(mpp0)
    if size_wh_px0[0] * size_wh_px0[1] > MAX_MASK_PX * downsample**2:
        raise BadAnnotationError(
            f"a slide of {size_wh_px0[0]} × {size_wh_px0[1]} px at {mpp0:g} µm/px: the mask of its lesions would have "
            f"more than {MAX_MASK_PX} pixels. Check its mpp; or leave `annotations` empty in the manifest."
        )
    return number_lesions(rasterised(areas, size_wh_px0, downsample), mpp0=mpp0, downsample=downsample)


def number_lesions(
    mask_yx: NDArray[np.bool_],
    *,
    mpp0: float,
    downsample: int,
    grow_um: float = GROW_UM,
    isolated_um: float = ISOLATED_UM,
) -> Lesions:
    """Lesions of a mask: grown, filled, connected, with isolated tumour cells identified."""
    mask_mpp = mpp0 * downsample
    grown = ndimage.distance_transform_edt(~mask_yx) < grow_um / (mask_mpp * 2)
    number_yx = label(ndimage.binary_fill_holes(grown), connectivity=2)
    regions = regionprops(number_yx)
    isolated = tuple(int(region.label) for region in regions if region.axis_major_length < isolated_um / mask_mpp)
    return Lesions(number_yx.astype(np.int32), downsample, len(regions), isolated)


def rasterised(areas: Sequence[BaseGeometry], size_wh_px0: tuple[int, int], downsample: int) -> NDArray[np.bool_]:
    """Mask of pixels whose centre is in an area; an area that covers no centre gets the pixel of a point inside it."""
    width, height = (-(-side // downsample) for side in size_wh_px0)
    mask = np.zeros((height, width), bool)
    for area in areas:
        left, top, right, bottom = (value / downsample for value in area.bounds)
        rows = slice(max(0, int(np.floor(top))), min(height, int(np.ceil(bottom))))
        columns = slice(max(0, int(np.floor(left))), min(width, int(np.ceil(right))))
        inside = _centres_inside(area, rows, columns, downsample)
        mask[rows, columns] |= inside
        if not inside.any():
            point = area.representative_point()
            row, column = int(point.y // downsample), int(point.x // downsample)
            mask[min(max(row, 0), height - 1), min(max(column, 0), width - 1)] = True
    return mask


def _centres_inside(area: BaseGeometry, rows: slice, columns: slice, downsample: int) -> NDArray[np.bool_]:
    shapely.prepare(area)
    x_px0 = (np.arange(columns.start, columns.stop) + 0.5) * downsample
    y_px0 = (np.arange(rows.start, rows.stop) + 0.5) * downsample
    inside = np.zeros((len(y_px0), len(x_px0)), bool)
    if not inside.size:
        return inside
    at_once = max(1, POINTS_AT_ONCE // len(x_px0))
    for start in range(0, len(y_px0), at_once):
        lines = y_px0[start : start + at_once]
        inside[start : start + at_once] = shapely.contains_xy(area, x_px0[None], lines[:, None])
    return inside
