"""The prediction of one class as a small grey PNG: the browser gives it colours."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CODES = 254
"""Code 0 is "not predicted"; a probability p has code 1 + floor(254 p). frontend/src/palettes.ts knows the same."""


def overlay_png(probabilities_yx: NDArray[np.floating]) -> bytes:
    """One pixel per cell, 8 bits of grey."""
    scaled = np.floor(probabilities_yx.astype(np.float32) * CODES) + 1
    codes = np.where(np.isnan(scaled), 0, scaled).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(codes).save(stream, "png")
    return stream.getvalue()
