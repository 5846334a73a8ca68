"""JPEG, JPEG 2000 and PNG streams into pixels and back, by imagecodecs; JPEG decoded at a smaller size by simplejpeg.

All image codecs are called from this folder: here for single streams, in `strict.py` to find damage, in
`tiff_segments.py` through tifffile, which undoes what a TIFF wraps around a codec, and in `dicom_frames.py` through
wsidicom. Two libraries decode by themselves: OpenSlide (`slides/openslide/library.py`), whose decoders are the point of
the reference decoder, and zarr (`slides/ome_zarr/library.py`), whose codecs are named by the folder. Copies in TIFF
are encoded by tifffile (`export/tiff/writer.py`), the web viewer's overlays by Pillow
(`pathology_app/tiles/overlay_png.py`).
"""

from __future__ import annotations

import struct
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from simplejpeg import decode_jpeg as decode_scaled  # type: ignore[attr-defined] # in a compiled module
from simplejpeg import decode_jpeg_header  # type: ignore[attr-defined]

from pipeline.codecs.jpeg import parse
from pipeline.codecs.jpeg_segments import EOI
from pipeline.codecs.types import DecodeError, Pixels

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = struct.Struct(">8x8xIIBB")
"""Signature, head of the first chunk; width, height, bits per value, colour type."""
_PNG_CHANNELS = {0: 2, 2: 4, 3: 4, 4: 2, 6: 4}
"""By colour type, with alpha, which a PNG may state further on."""


def decode_jpeg(stream: bytes, **options: Any) -> Pixels:
    """Pixels of a JPEG stream, uint8 (height, width, 3), colours as its own markers state.

    Args:
        options: of the library: `tables`, `colorspace`, `outcolorspace` if the stream alone does not say enough;
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


def decode_jpeg_segment(raw: bytes, tables: bytes | None, colours: str) -> NDArray[np.uint8]:
    """A TIFF's JPEG tile or strip of any process, uint8 (height, width, samples), of the size that it states itself.

    Args:
        tables: the page's JPEGTables.
        colours: kind of its components, in imagecodecs' terms: "RGB", "YCBCR", which both become R, G, B, or
            "GRAYSCALE" for a single one.

    Raises:
        DecodeError: cannot be decoded.
    """
    becomes = "GRAYSCALE" if colours == "GRAYSCALE" else "RGB"
    try:
        decoded = imagecodecs.jpeg_decode(raw, tables=tables, colorspace=colours, outcolorspace=becomes)
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:  # the codecs' own errors are RuntimeErrors
        raise DecodeError(f"JPEG of {len(raw)} bytes: {error}") from error
    if decoded.ndim not in (2, 3) or decoded.dtype != np.uint8:
        raise DecodeError(f"it decodes to shape {decoded.shape} of {decoded.dtype}")
    return np.asarray(decoded if decoded.ndim == 3 else decoded[..., None])


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
        raise DecodeError(f"JPEG of {side_px} px: decoded to {pixels.shape}, not {small_px} px")
    return np.asarray(pixels, np.uint8)


def encode_jpeg(pixels: Pixels, *, quality: int = 90) -> bytes:
    """A complete JPEG of pixels (4:4:4): for display, and for levels requested in JPEG."""
    return bytes(imagecodecs.jpeg8_encode(np.ascontiguousarray(pixels), level=quality, subsampling="444"))


_SUBSAMPLINGS = {(2, 1): "422", (2, 2): "420", (4, 1): "411", (1, 2): "440"}
"""Names by the factors of the first component; others are written without subsampling."""


def white_jpeg(side_px: int, *, is_rgb: bool, sampling: tuple[int, int]) -> bytes:
    """A complete white JPEG, whose markers say what its components are; at this quality white decodes to 255.

    Args:
        sampling: horizontal and vertical factors of the first component.
    """
    white = np.full((side_px, side_px, 3), 255, np.uint8)
    becomes, subsampling = ("RGB", "444") if is_rgb else ("YCBCR", _SUBSAMPLINGS.get(sampling, "444"))
    stream = imagecodecs.jpeg8_encode(white, level=100, outcolorspace=becomes, subsampling=subsampling)
    parsed = parse(bytes(stream))
    return parsed.head(is_rgb=is_rgb) + parsed.coded


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


def white_jpeg_2000(side_px: int) -> bytes:
    """A lossless white JPEG 2000 codestream."""
    return encode_jpeg_2000(np.full((side_px, side_px, 3), 255, np.uint8))


def ycbcr_to_rgb(ycbcr: Pixels) -> Pixels:
    """R, G, B from full-range Y, Cb, Cr (JFIF), as in JPEG 2000 streams that are not marked as such."""
    y, cb, cr = (ycbcr[..., i].astype(np.float32) for i in range(3))
    cb, cr = cb - 128, cr - 128
    rgb = np.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb], axis=-1)
    return np.asarray(np.clip(np.rint(rgb), 0, 255), dtype=np.uint8)


def png_size(data: bytes) -> tuple[int, int, int]:
    """Width, height and decoded bytes, at most, that a PNG claims; nothing is decoded.

    Raises:
        DecodeError: not a PNG.
    """
    if not data.startswith(PNG_SIGNATURE) or len(data) < _PNG_HEADER.size:
        raise DecodeError(f"{len(data)} bytes that are not a PNG")
    width, height, bits, colour = _PNG_HEADER.unpack_from(data)
    if colour not in _PNG_CHANNELS:
        raise DecodeError(f"a PNG of an unknown colour type ({colour})")
    return width, height, width * height * _PNG_CHANNELS[colour] * (2 if bits > 8 else 1)


def decode_png(data: bytes) -> NDArray[Any]:
    """Values of a PNG, uint8 or uint16 (height, width, channels): grey or RGB, and alpha if it has that.

    The caller checks `png_size` first: a small file can claim any size.

    Raises:
        DecodeError: cannot be decoded.
    """
    try:
        values = np.asarray(imagecodecs.png_decode(data))
    except (imagecodecs.PngError, ValueError, MemoryError) as error:
        raise DecodeError(f"PNG of {len(data)} bytes: {error}") from error
    return values if values.ndim == 3 else values[..., None]
