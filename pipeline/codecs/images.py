"""Streams into pixels and back: the only file that calls a picture codec's library."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from pipeline.store.layout import ZSTD_LEVEL, Codec

Pixels = NDArray[np.uint8]
_EOI = b"\xff\xd9"


class ChunkError(ValueError):
    """A stored chunk cannot be decoded."""


def decode_jpeg(stream: bytes, **options: Any) -> Pixels:
    """Pixels of a JPEG stream, uint8 (height, width, 3), colours as its own markers say.

    Args:
        options: of the library: `tables`, `colorspace`, `outcolorspace` where the stream alone does not say enough;
            `out` to decode into.

    Raises:
        ChunkError: cannot be decoded. libjpeg fills what is missing at the end with grey, so the end is checked here.
    """
    if not stream.endswith(_EOI) and stream.rfind(_EOI) < 0:
        raise ChunkError(f"JPEG of {len(stream)} bytes without an end marker: cut short or overwritten")
    try:
        return np.asarray(imagecodecs.jpeg8_decode(stream, **options), dtype=np.uint8)
    except (imagecodecs.Jpeg8Error, ValueError) as error:
        raise ChunkError(f"JPEG of {len(stream)} bytes: {error}") from error


def encode_jpeg(pixels: Pixels, *, quality: int = 90) -> bytes:
    """A complete JPEG of pixels (4:4:4): for display, and for levels that were asked for in JPEG."""
    return bytes(imagecodecs.jpeg8_encode(np.ascontiguousarray(pixels), level=quality, subsampling="444"))


def decode_jpeg_2000(stream: bytes, **options: Any) -> Pixels:
    """Pixels of a JPEG 2000 codestream, uint8 (height, width, 3); one thread, as callers bring their own.

    Raises:
        ChunkError: cannot be decoded.
    """
    try:
        return np.asarray(imagecodecs.jpeg2k_decode(stream, numthreads=1, **options), dtype=np.uint8)
    except (imagecodecs.Jpeg2kError, ValueError) as error:
        raise ChunkError(f"JPEG 2000 of {len(stream)} bytes: {error}") from error


def encode_jpeg_2000(pixels: Pixels) -> bytes:
    """A lossless JPEG 2000 codestream of pixels."""
    return bytes(imagecodecs.jpeg2k_encode(pixels, codecformat="j2k", reversible=True, level=0))


def decode_zstd(stream: bytes, chunk_px: int) -> Pixels:
    """Pixels of a zstd chunk, uint8 (chunk_px, chunk_px, 3). Its own checksum is checked."""
    raw = decompress_zstd(stream, chunk_px * chunk_px * 3)
    return np.frombuffer(raw, np.uint8).reshape(chunk_px, chunk_px, 3)


def decompress_zstd(stream: bytes, num_bytes: int) -> bytes:
    """What a zstd stream holds, whatever it claims: exactly `num_bytes`.

    Raises:
        ChunkError: cannot be decompressed, or holds another number of bytes.
    """
    try:
        raw = imagecodecs.zstd_decode(stream, out=num_bytes)
    except (imagecodecs.ZstdError, ValueError) as error:
        raise ChunkError(f"zstd chunk of {len(stream)} bytes: {error}") from error
    if len(raw) != num_bytes:
        raise ChunkError(f"zstd chunk of {len(stream)} bytes holds {len(raw)} bytes, not {num_bytes}")
    return bytes(raw)


def encode_zstd(values: NDArray[Any], *, with_checksum: bool = True) -> bytes:
    """Lossless: the array's bytes in C order under zstd."""
    if not with_checksum:
        return bytes(imagecodecs.zstd_encode(values.tobytes(), level=ZSTD_LEVEL))
    from numcodecs.zstd import compress  # only on the decode route: its import takes longer than copying a slide

    return bytes(compress(np.ascontiguousarray(values), ZSTD_LEVEL, True))


def decode_chunk(codec: Codec, stream: bytes, chunk_px: int, *, out: Pixels | None = None) -> Pixels:
    """Pixels of a stored chunk, uint8 (chunk_px, chunk_px, 3).

    Args:
        out: memory to decode pictures into instead of new memory, of that shape.

    Raises:
        ChunkError: cannot be decoded, or has another size.
    """
    if codec == "zstd":
        return decode_zstd(stream, chunk_px)
    # The library writes into memory of the right size or not at all: a stream that claims more cannot take it.
    if out is None:
        out = np.empty((chunk_px, chunk_px, 3), np.uint8)
    return decode_jpeg(stream, out=out) if codec == "imagecodecs_jpeg" else decode_jpeg_2000(stream, out=out)


class ToSrgb:
    """Turns a scanner's colours into those of a screen, by the slide's ICC profile."""

    def __init__(self, icc: bytes) -> None:
        source = ImageCms.ImageCmsProfile(BytesIO(icc))
        self._transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), "RGB", "RGB")

    def __call__(self, pixels: Pixels) -> Pixels:
        converted = ImageCms.applyTransform(Image.fromarray(pixels), self._transform)
        assert converted is not None  # only None when converting in place
        return np.asarray(converted)
