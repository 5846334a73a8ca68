"""JPEG decoded so that damage is reported: what libjpeg only warns of, and fills in with grey, is an error here."""

from __future__ import annotations

import numpy as np
from simplejpeg import decode_jpeg  # type: ignore[attr-defined] # in a compiled module

from pipeline.codecs.types import DecodeError, Pixels

FACTOR = 8
"""libjpeg makes an eighth of the size from the coded data's means: every code is read, hardly a pixel computed."""


def eighth_of_jpeg(stream: bytes, side_px: int) -> Pixels:
    """A JPEG tile at an eighth of its size: means of 8 × 8 pixels, uint8 (⌈side / 8⌉, ⌈side / 8⌉, 3), R, G, B.

    Args:
        side_px: of the tile; its header has been checked to say so.

    Raises:
        DecodeError: cannot be decoded, or its coded data end too early or too late, or hold a code that does not exist.
    """
    least_px = -(-side_px // FACTOR)
    try:
        decoded = decode_jpeg(
            stream, colorspace="RGB", min_height=least_px, min_width=least_px, min_factor=1, strict=True
        )
    except ValueError as error:
        raise DecodeError(f"JPEG of {len(stream)} bytes: {error}") from error
    return np.asarray(decoded, dtype=np.uint8)
