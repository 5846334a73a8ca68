"""Decoding and encoding of stored chunks: lossless ones with zstd here, images by their codec."""

from __future__ import annotations

from typing import Any

import numpy as np
from imagecodecs import ZstdError, zstd_decode, zstd_encode
from numpy.typing import NDArray

from pipeline.codecs.images import decode_jpeg, decode_jpeg_2000
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.store.format.layout import ZSTD_LEVEL, Codec


def decode_zstd(stream: bytes, chunk_px: int) -> Pixels:
    """Pixels of a zstd chunk, uint8 (chunk_px, chunk_px, 3). The stream's own checksum is verified."""
    raw = decompress_zstd(stream, chunk_px * chunk_px * 3)
    return np.frombuffer(raw, np.uint8).reshape(chunk_px, chunk_px, 3)


def decompress_zstd(stream: bytes, num_bytes: int) -> bytes:
    """Decompress a zstd stream to exactly `num_bytes`, whatever it claims.

    Raises:
        DecodeError: cannot be decompressed, or does not hold that many bytes.
    """
    try:
        raw = zstd_decode(stream, out=num_bytes)
    except (ZstdError, ValueError) as error:
        raise DecodeError(f"zstd chunk of {len(stream)} bytes: {error}") from error
    if len(raw) != num_bytes:
        raise DecodeError(f"zstd chunk of {len(stream)} bytes holds {len(raw)} bytes, not {num_bytes}")
    return bytes(raw)


def encode_zstd(values: NDArray[Any], *, with_checksum: bool = True) -> bytes:
    """Compress the array's bytes in C order with zstd, losslessly."""
    if not with_checksum:
        return bytes(zstd_encode(values.tobytes(), level=ZSTD_LEVEL))
    from numcodecs.zstd import compress  # only on the decode route: its import takes longer than copying a slide

    return bytes(compress(np.ascontiguousarray(values), ZSTD_LEVEL, True))


def decode_chunk(codec: Codec, stream: bytes, chunk_px: int, *, out: Pixels | None = None) -> Pixels:
    """Pixels of a stored chunk, uint8 (chunk_px, chunk_px, 3).

    Args:
        out: memory to decode images into instead of new memory, of that shape.

    Raises:
        DecodeError: cannot be decoded, or has another size.
    """
    if codec == "zstd":
        return decode_zstd(stream, chunk_px)
    # The library writes into memory of the right size or not at all: a stream that claims more cannot take it.
    if out is None:
        out = np.empty((chunk_px, chunk_px, 3), np.uint8)
    return decode_jpeg(stream, out=out) if codec == "imagecodecs_jpeg" else decode_jpeg_2000(stream, out=out)
