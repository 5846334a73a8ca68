"""Images of two slides at one resolution in µm: small enough to compare, fine enough to see the tissue's structure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels
from pipeline.errors import MissingMppError, NoTissueError
from pipeline.store import StoreReader, read_tissue
from training.foundation.errors import UnreadableError

USUAL_MPP, FINEST_MPP, COARSEST_MPP = 8.0, 2.0, 32.0
"""Resolution of the comparison, in µm per pixel; finer on small slides, coarser on large or coarsely scanned ones."""
SMALL_SIDE_PX, MAX_SIDE_PX = 1024, 2400
MIN_TISSUE_PX = 20_000
"""Pixels of tissue in a comparison, below which a match could be chance."""
MIN_MPP0, MAX_MPP0 = 0.05, 50.0


@dataclass(frozen=True)
class Thumbnail:
    """A whole slide at the resolution of the comparison.

    Attributes:
        pixels: uint8 (height, width, 3).
        tissue_yx: True where there is tissue.
        mpp: µm per pixel.
    """

    slide_id: str
    pixels: Pixels
    tissue_yx: NDArray[np.bool_]
    mpp: float

    @property
    def size_wh_px(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]


def common_mpp(first: StoreReader, second: StoreReader) -> float:
    """Resolution at which two slides are compared, in µm per pixel.

    Raises:
        MissingMppError: a slide states no usable pixel size. UnreadableError: a slide is too coarse or too large.
    """
    longest_um = 0.0
    for reader in (first, second):
        if not (math.isfinite(reader.mpp0) and MIN_MPP0 <= reader.mpp0 <= MAX_MPP0):
            raise MissingMppError(
                f"slide {reader.slide_id}: its pixel size is {reader.mpp0} µm, not {MIN_MPP0} to {MAX_MPP0} µm. "
                "Ingest it again with --mpp, then register."
            )
        longest_um = max(longest_um, max(reader.size_wh_px0) * reader.mpp0)
    wanted = max(min(USUAL_MPP, longest_um / SMALL_SIDE_PX), longest_um / MAX_SIDE_PX, FINEST_MPP)
    mpp = max(wanted, first.mpp0, second.mpp0)
    if mpp > COARSEST_MPP:
        raise UnreadableError(
            f"slides {first.slide_id} and {second.slide_id}: they would be compared at {mpp:.1f} µm per pixel; more "
            f"than {COARSEST_MPP:.0f} µm shows too little of the tissue. Use slides of a finer scan, or a smaller area."
        )
    return mpp


def read_thumbnail(reader: StoreReader, mpp: float) -> Thumbnail:
    """A slide and its tissue mask at `mpp`.

    Raises:
        NoTissueError: too little tissue to compare. GemslideError: the store, or its mask, cannot be read.
    """
    width_px0, height_px0 = reader.size_wh_px0
    width_px = max(1, round(width_px0 * reader.mpp0 / mpp))
    height_px = max(1, round(height_px0 * reader.mpp0 / mpp))
    tissue_yx = _tissue_at(reader, mpp, (width_px, height_px))
    area_px = int(tissue_yx.sum())
    if area_px < MIN_TISSUE_PX:
        raise NoTissueError(
            f"slide {reader.slide_id}: {area_px * mpp**2 / 1e6:.2f} mm² of tissue; registration at {mpp:.1f} µm per "
            f"pixel needs {MIN_TISSUE_PX * mpp**2 / 1e6:.2f} mm². Register by points instead, or check the tissue "
            "mask (`gemslide tissue`)."
        )
    pixels = reader.read_at_mpp(0, 0, width_px, height_px, mpp)
    return Thumbnail(reader.slide_id, pixels, tissue_yx, mpp)


def _tissue_at(reader: StoreReader, mpp: float, size_wh_px: tuple[int, int]) -> NDArray[np.bool_]:
    mask_yx, mask_mpp = read_tissue(reader.path)
    scale = mpp / mask_mpp
    matrix = np.array([[scale, 0.0, (scale - 1) / 2], [0.0, scale, (scale - 1) / 2]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    if scale > 1:
        side = round(scale) | 1
        mask_yx = np.asarray(cv2.blur(mask_yx * np.uint8(200), (side, side)), np.uint8)
        return np.asarray(cv2.warpAffine(mask_yx, matrix, size_wh_px, flags=flags) >= 100, np.bool_)
    return np.asarray(cv2.warpAffine(mask_yx * np.uint8(200), matrix, size_wh_px, flags=flags) >= 100, np.bool_)
