"""JPEG and JPEG 2000 streams into pixels and back, by imagecodecs; JPEG made smaller on the way, by simplejpeg.

All image codecs are called from this folder: here for single streams, in `strict.py` to find damage, in
`tiff_segments.py` through tifffile, which undoes what a TIFF wraps around a codec, and in `dicom_frames.py` through
wsidicom. Two libraries decode by themselves: OpenSlide (`slides/openslide/library.py`), whose decoders are what the
reference decoder is for, and zarr (`slides/ome_zarr/library.py`), whose codecs are named by the folder. Copies in TIFF
are encoded by tifffile (`export/tiff/writer.py`), the web viewer's overlays by Pillow
(`pathology_app/tiles/overlay_png.py`).
"""

from __future__ import annotations

from typing import Any

import imagecodecs
import numpy as np
from simplejpeg import decode_jpeg as decode_scaled  # type: ignore[attr-defined] # in a compiled module
from simplejpeg import decode_jpeg_header  # type: ignore[attr-defined]

from pipeline.codecs.jpeg_segments import EOI
from pipeline.codecs.types import DecodeError, Pixels


def decode_jpeg(stream: bytes, **options: Any) -> Pixels:
    """Pixels of a JPEG stream, uint8 (height, width, 3), colours as its own markers say.

    Args:
        options: of the library: `tables`, `colorspace`, `outcolorspace` where the stream alone does not say enough;
            `out` to decode into.

    Raises:
        DecodeError: cannot be decoded. libjpeg fills what is missing at the end with grey, so the end is checked here.
    """
    if not stream.endswith(EOI) and stream.rfind(EOI) < 0:
        raise DecodeError(f"JPEG of {len(stream)} bytes without an end marker: cut short or overwritten")
    try:
        return np.asarray(imagecodecs.jpeg8_decode(stream, **options), dtype=np.uint8)
    except (imagecodecs.Jpeg8Error, ValueError) as error:
        raise DecodeError(f"JPEG of {len(stream)} bytes: {error}") from error


def decode_jpeg_small(stream: bytes, side_px: int, shrink: int) -> Pixels:
    """A square JPEG `shrink` times smaller, uint8 (side_px // shrink, side_px // shrink, 3), by libjpeg-turbo.

    Only the lower frequencies of each block are decoded: half the work, and within a few grey levels of the mean.

    Args:
        side_px: of the JPEG; a multiple of `shrink`.
        shrink: 2, 4 or 8.

    Raises:
        DecodeError: cannot be decoded, or has another size.
    """
    small_px = side_px // shrink
    try:
        height, width, *_ = decode_jpeg_header(stream)
        if (height, width) != (side_px, side_px):
            raise DecodeError(f"JPEG of {width} × {height} px, not {side_px} × {side_px}")
        pixels = decode_scaled(stream, min_height=small_px, min_width=small_px, min_factor=1)
    except ValueError as error:
        raise DecodeError(f"JPEG of {len(stream)} bytes: {error}") from error
    if pixels.shape != (small_px, small_px, 3):
        raise DecodeError(f"JPEG of {side_px} px: decoded in {pixels.shape}, not {small_px} px")
    return np.asarray(pixels, np.uint8)


def encode_jpeg(pixels: Pixels, *, quality: int = 90) -> bytes:
    """A complete JPEG of pixels (4:4:4): for display, and for levels that were asked for in JPEG."""
    return bytes(imagecodecs.jpeg8_encode(np.ascontiguousarray(pixels), level=quality, subsampling="444"))


def decode_jpeg_2000(stream: bytes, **options: Any) -> Pixels:
    """Pixels of a JPEG 2000 codestream, uint8 (height, width, 3); one thread, as callers bring their own.

    Raises:
        DecodeError: cannot be decoded.
    """
    try:
        return np.asarray(imagecodecs.jpeg2k_decode(stream, numthreads=1, **options), dtype=np.uint8)
    except (imagecodecs.Jpeg2kError, ValueError) as error:
        raise DecodeError(f"JPEG 2000 of {len(stream)} bytes: {error}") from error


def encode_jpeg_2000(pixels: Pixels) -> bytes:
    """A lossless JPEG 2000 codestream of pixels."""
    return bytes(imagecodecs.jpeg2k_encode(pixels, codecformat="j2k", reversible=True, level=0))
