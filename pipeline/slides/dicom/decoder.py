"""Decoding of a DICOM slide's frames into pixels."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pipeline.codecs.dicom_frames import DicomFrameDecoder
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.slides.dicom.frames import FrameError
from pipeline.slides.dicom.headers.matrix import (
    HIGH_THROUGHPUT_JPEG_2000,
    JPEG,
    JPEG_2000,
    NATIVE,
    RUN_LENGTH,
    Matrix,
)
from pipeline.slides.dicom.streams import FrameStreams
from pipeline.slides.dicom.validate import check_claimed_size, check_run_lengths

_SAMPLES = 3


class FrameDecoder:
    """Decodes the frames of one level. Thread-safe."""

    def __init__(self, matrix: Matrix, streams: FrameStreams) -> None:
        self._matrix, self._streams = matrix, streams

    def decode(self, payload: memoryview) -> Pixels | None:
        """Pixels of a whole frame, uint8 (tile_h_px, tile_w_px, 3); None for an empty one.

        Raises:
            FrameError: it cannot be decoded.
        """
        if not len(payload):
            return None
        matrix = self._matrix
        if matrix.transfer_syntax in NATIVE:
            return self._native(payload)
        if matrix.transfer_syntax in JPEG | JPEG_2000 | HIGH_THROUGHPUT_JPEG_2000:
            stream = b"".join(self._streams.stream(payload))
        else:
            stream = bytes(payload)
            if matrix.transfer_syntax == RUN_LENGTH:
                check_run_lengths(matrix, stream)
            else:
                check_claimed_size(matrix, stream)
        try:
            pixels = self._decoder.decode(stream)
        except DecodeError as error:
            raise FrameError(str(error)) from error
        if pixels.shape != (matrix.tile_h_px, matrix.tile_w_px, _SAMPLES) or pixels.dtype != np.uint8:
            raise FrameError(f"it decodes to shape {pixels.shape} of {pixels.dtype}")
        return pixels

    @cached_property
    def _decoder(self) -> DicomFrameDecoder:
        # JPEG streams already state their own colours: the file's statement must not be applied as well.
        photometric = "YBR_FULL_422" if self._matrix.transfer_syntax in JPEG else "RGB"
        size_wh_px = (self._matrix.tile_w_px, self._matrix.tile_h_px)
        return DicomFrameDecoder(self._matrix.transfer_syntax, size_wh_px, photometric)

    def _native(self, payload: memoryview) -> Pixels:
        matrix = self._matrix
        if not 0 <= len(payload) - matrix.frame_bytes <= 1:
            raise FrameError(f"{len(payload)} bytes, not the {matrix.frame_bytes} of a frame")
        values = np.frombuffer(payload[: matrix.frame_bytes], np.uint8)
        if matrix.is_planar:
            return values.reshape(_SAMPLES, matrix.tile_h_px, matrix.tile_w_px).transpose(1, 2, 0)
        return values.reshape(matrix.tile_h_px, matrix.tile_w_px, _SAMPLES)
