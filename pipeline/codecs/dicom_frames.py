"""Frames of DICOM into pixels: the only calls to wsidicom's decoders, which wrap other libraries."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
from pydicom.uid import UID

from pipeline.codecs.types import DecodeError, Pixels

if TYPE_CHECKING:
    from wsidicom.codec import Decoder

_BITS, _SAMPLES = 8, 3
_DECODER_ERRORS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, struct.error, OSError,
    EOFError, RuntimeError, MemoryError,
)  # fmt: skip
"""Errors that wsidicom and the codecs raise on frames that lie about themselves."""


class DicomFrameDecoder:
    """Decodes frames of one transfer syntax and size. Thread-safe.

    Args:
        photometric: PS3.3's name for the colours that the decoder must turn into R, G, B.
    """

    def __init__(self, transfer_syntax: str, size_wh_px: tuple[int, int], photometric: str) -> None:
        self._decoder = _decoder(transfer_syntax, size_wh_px, photometric)

    def decode(self, stream: bytes) -> Pixels:
        """Pixels of a frame, in whatever shape they decode to. Raises DecodeError."""
        try:
            return np.asarray(self._decoder.decode(stream))
        except _DECODER_ERRORS as error:
            raise DecodeError(str(error)) from error


def _decoder(transfer_syntax: str, size_wh_px: tuple[int, int], photometric: str) -> Decoder:
    # wsidicom takes a second to import, and uncompressed or passed-through slides do without it.
    from wsidicom.codec import Decoder
    from wsidicom.geometry import Size

    return Decoder.create(UID(transfer_syntax), _SAMPLES, _BITS, Size(*size_wh_px), photometric)
