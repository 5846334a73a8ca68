"""Tiles, strips and pages of a TIFF into pixels: the only calls to tifffile's decoders, which wrap imagecodecs.

tifffile chooses the codec by the page's tags and undoes predictor, bit order and byte order. JPEG alone is decoded
without it (`images.py`): each stream says what its components are, but tifffile goes by the tags and the first tile.
"""

from __future__ import annotations

import struct

import numpy as np
import tifffile
from imagecodecs import DelayedImportError
from numpy.typing import NDArray

from pipeline.codecs.types import DecodeError, Pixels

_DECODER_ERRORS = (
    tifffile.TiffFileError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error, OSError,
    RuntimeError, MemoryError, DelayedImportError,
)  # fmt: skip
"""Errors that tifffile and the codecs raise on data that lie about themselves; imagecodecs' are RuntimeErrors."""


def decode_segment(page: tifffile.TiffPage, raw: bytes, index: int) -> NDArray[np.uint8] | None:
    """A tile or strip by tifffile, uint8 (height, width, samples); None for an empty one.

    A tile at the right or bottom edge may come out cut to the image.

    Raises:
        DecodeError: cannot be decoded, or decodes to something other than bytes.
    """
    try:
        decoded = page.decode(raw, index, jpegtables=page.jpegtables)[0]
    except _DECODER_ERRORS as error:
        raise DecodeError(str(error)) from error
    if decoded is None:
        return None
    if decoded.ndim != 4 or decoded.shape[0] != 1 or decoded.dtype != np.uint8:
        raise DecodeError(f"it decodes to shape {decoded.shape} of {decoded.dtype}")
    return np.asarray(decoded[0])


def decode_page(page: tifffile.TiffPage) -> Pixels:
    """Pixels of a whole page as uint8, in whatever shape it has.

    Raises:
        DecodeError: cannot be decoded.
    """
    try:
        return np.asarray(page.asarray(), dtype=np.uint8)
    except _DECODER_ERRORS as error:
        raise DecodeError(str(error)) from error
