"""The JPEG codec of the store, for plain zarr and for our own reader: the only file that calls a JPEG library.

Registered with zarr by an entry point, so that `zarr.open` reads a slide store in any program where gemslide is
installed. Name and behaviour follow the codec of the same name in the imagecodecs project.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Self

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec as ZarrArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.common import JSON

Pixels = NDArray[np.uint8]


class ChunkError(ValueError):
    """A stored chunk cannot be decoded."""


def decode_jpeg(stream: bytes) -> Pixels:
    """Pixels of a complete JPEG stream, uint8 (height, width, 3), colours as its own markers say.

    Raises:
        ChunkError: cannot be decoded. libjpeg fills what is missing at the end with grey, so the end is checked here.
    """
    if stream.rfind(b"\xff\xd9") < 0:
        raise ChunkError(f"JPEG of {len(stream)} bytes without an end marker: cut short or overwritten")
    try:
        return np.asarray(imagecodecs.jpeg8_decode(stream), dtype=np.uint8)
    except (imagecodecs.Jpeg8Error, ValueError) as error:
        raise ChunkError(f"JPEG of {len(stream)} bytes: {error}") from error


def encode_jpeg(pixels: Pixels, *, quality: int = 90) -> bytes:
    """A browser's JPEG of pixels (4:4:4). For display only: the store itself never re-encodes."""
    return bytes(imagecodecs.jpeg8_encode(np.ascontiguousarray(pixels), level=quality, subsampling="444"))


def decode_zstd(stream: bytes, chunk_px: int) -> Pixels:
    """Pixels of a zstd chunk, uint8 (chunk_px, chunk_px, 3)."""
    try:
        raw = imagecodecs.zstd_decode(stream, out=chunk_px * chunk_px * 3)
        return np.frombuffer(raw, np.uint8).reshape(chunk_px, chunk_px, 3)
    except (imagecodecs.ZstdError, ValueError) as error:
        raise ChunkError(f"zstd chunk of {len(stream)} bytes: {error}") from error


def encode_zstd(pixels: Pixels) -> bytes:
    """Lossless chunk: y,x,c bytes under zstd level 3."""
    return bytes(imagecodecs.zstd_encode(pixels.tobytes(), level=3))


class ToSrgb:
    """Turns a scanner's colours into those of a screen, by the slide's ICC profile."""

    def __init__(self, icc: bytes) -> None:
        source = ImageCms.ImageCmsProfile(BytesIO(icc))
        self._transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), "RGB", "RGB")

    def __call__(self, pixels: Pixels) -> Pixels:
        converted = ImageCms.applyTransform(Image.fromarray(pixels), self._transform)
        assert converted is not None  # only None when converting in place
        return np.asarray(converted)


@dataclass(frozen=True)
class JpegCodec(ArrayBytesCodec):
    """zarr v3 `imagecodecs_jpeg`: each chunk a complete JPEG; reads only.

    Writing through zarr would be lossy, and the scanner's own bytes are what the store promises: new pixels go
    into zstd arrays instead.
    """

    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        if data.get("configuration"):
            raise ValueError(
                f"imagecodecs_jpeg with a configuration ({data['configuration']}): gemslide reads arrays whose chunks "
                "are complete JPEG streams only. Open this one with the codec of the program that wrote it."
            )
        return cls()

    def to_dict(self) -> dict[str, JSON]:
        return {"name": "imagecodecs_jpeg"}

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ZarrArraySpec) -> int:
        raise NotImplementedError("the size of a JPEG is not known before it is made")

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ZarrArraySpec) -> NDBuffer:
        pixels = await asyncio.to_thread(decode_jpeg, chunk_data.to_bytes())
        return chunk_spec.prototype.nd_buffer.from_numpy_array(pixels.reshape(chunk_spec.shape))

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ZarrArraySpec) -> Buffer | None:
        raise TypeError(
            "this array holds the scanner's own JPEG tiles and is not written through zarr: that would change pixels. "
            "Make a store with `gemslide ingest`; write new pixels into a zstd array."
        )

    def resolve_metadata(self, chunk_spec: ZarrArraySpec) -> ZarrArraySpec:
        return chunk_spec

    def evolve_from_array_spec(self, array_spec: ZarrArraySpec) -> Self:
        return self

    def validate(self, **_: Any) -> None:
        """Nothing to check: the chunk's shape is checked when it is decoded."""
