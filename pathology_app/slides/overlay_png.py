"""The prediction of one class, and the damage mask, as small PNGs that the browser colours."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CODES = 254
"""Code 0 is "not predicted"; a probability p has code 1 + floor(254 p).
frontend/src/layers/palettes.ts uses the same codes."""


def overlay_png(probabilities_yx: NDArray[np.floating]) -> bytes:
    """PNG with one pixel per cell, 8-bit greyscale."""
    scaled = np.floor(probabilities_yx.astype(np.float32) * CODES) + 1
    codes = np.where(np.isnan(scaled), 0, scaled).astype(np.uint8)
    return _png(codes)


def mask_png(mask_yx: NDArray[np.uint8]) -> bytes:
    """PNG with one pixel per cell, opaque black where the mask is 1, else clear: the browser hatches opaque cells."""
    return _png(np.stack([np.zeros_like(mask_yx), np.where(mask_yx, 255, 0).astype(np.uint8)], -1))


def rgba_png(rgba_yxc: NDArray[np.uint8]) -> bytes:
    """PNG of an image, unchanged."""
    return _png(rgba_yxc)


def _png(values: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "png")
    return stream.getvalue()
