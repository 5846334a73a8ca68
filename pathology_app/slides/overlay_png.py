"""The prediction of one class, and the mask of damage, as small PNGs: the browser gives them colours."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CODES = 254
"""Code 0 is "not predicted"; a probability p has code 1 + floor(254 p).
frontend/src/layers/palettes.ts knows the same."""


def overlay_png(probabilities_yx: NDArray[np.floating]) -> bytes:
    """One pixel per cell, 8 bits of grey."""
    scaled = np.floor(probabilities_yx.astype(np.float32) * CODES) + 1
    codes = np.where(np.isnan(scaled), 0, scaled).astype(np.uint8)
    return _png(codes)


def mask_png(mask_yx: NDArray[np.uint8]) -> bytes:
    """One pixel per cell, opaque black where the mask is 1 and clear elsewhere: the browser hatches what is opaque."""
    return _png(np.stack([np.zeros_like(mask_yx), np.where(mask_yx, 255, 0).astype(np.uint8)], -1))


def rgba_png(rgba_yxc: NDArray[np.uint8]) -> bytes:
    """An image as it is."""
    return _png(rgba_yxc)


def _png(values: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "png")
    return stream.getvalue()
