"""The store's image codecs for plain zarr.

Registered by entry points, so that `zarr.open` reads a slide store in any program where gemslide is installed. Names
and keys are those of the imagecodecs project's codecs, which read our stores too.
"""

from __future__ import annotations

import asyncio
import base64
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec as ZarrArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.common import JSON

from pipeline.codecs.images import decode_jpeg, decode_jpeg_2000
from pipeline.codecs.types import Pixels

_END_OF_JPEG = b"\xff\xd9"
_ENCODED, _DECODED = ("grayscale", "ycbcr", "rgb"), ("grayscale", "rgb")
READ_ONLY = (
    "this array holds the scanner's own tiles and is not written through zarr: that would change pixels. "
    "Make a store with `gemslide ingest`; write new pixels into a zstd array."
)


@dataclass(frozen=True)
class ReadOnlyCodec(ArrayBytesCodec):
    """Turns stored tiles into pixels, and refuses to store any.

    Writing through zarr would be lossy, and the scanner's own bytes are what the store promises.
    """

    configuration: dict[str, Any] = field(default_factory=dict)

    is_fixed_size = False
    codec_name: ClassVar[str]

    def to_dict(self) -> dict[str, JSON]:
        result: dict[str, JSON] = {"name": self.codec_name}
        if self.configuration:
            result["configuration"] = self.configuration
        return result

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ZarrArraySpec) -> int:
        raise NotImplementedError("the size of an image stream is not known before it is encoded")

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ZarrArraySpec) -> Buffer | None:
        raise TypeError(READ_ONLY)

    def resolve_metadata(self, chunk_spec: ZarrArraySpec) -> ZarrArraySpec:
        return chunk_spec

    def evolve_from_array_spec(self, array_spec: ZarrArraySpec) -> Self:
        return self

    def validate(self, **_: Any) -> None:
        """Nothing to check: sizes are checked when a chunk is decoded."""


class _StreamCodec(ReadOnlyCodec):
    """A chunk is one image stream."""

    known_keys: ClassVar[frozenset[str]]

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        configuration = data.get("configuration") or {}
        if not isinstance(configuration, dict) or (unknown := set(configuration) - cls.known_keys):
            raise ValueError(
                f"{cls.codec_name}: unknown configuration keys {sorted(unknown)}; known: {sorted(cls.known_keys)}"
            )
        return cls(configuration)

    @abstractmethod
    def pixels_of(self, stream: bytes) -> Pixels:
        """Pixels of one chunk's stream."""

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ZarrArraySpec) -> NDBuffer:
        pixels = await asyncio.to_thread(self.pixels_of, chunk_data.to_bytes())
        return chunk_spec.prototype.nd_buffer.from_numpy_array(pixels.reshape(chunk_spec.shape))


class JpegCodec(_StreamCodec):
    """zarr v3 `imagecodecs_jpeg`. Our stores have no configuration: each chunk is a complete JPEG.

    Arrays of other programs may keep a header, tables and colour spaces in the configuration; these are honoured. A
    chunk whose header is kept there has no end marker either. `fancyupsampling` off gives other pixels, which our
    decoder cannot produce: refused. The other keys concern encoding.
    """

    codec_name = "imagecodecs_jpeg"
    known_keys = frozenset(
        {"level", "bitspersample", "tables", "header", "colorspace_data", "colorspace_jpeg", "subsampling", "optimize"}
        | {"smoothing", "lossless", "predictor", "fancyupsampling"}
    )

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        codec = super().from_dict(data)
        if codec.configuration.get("fancyupsampling") is False:
            raise ValueError(f"{cls.codec_name}: fancyupsampling = false cannot be read here; true is the default")
        return codec

    def pixels_of(self, stream: bytes) -> Pixels:
        keys = self.configuration
        colours = {
            "tables": base64.b64decode(keys["tables"]) if keys.get("tables") else None,
            "colorspace": keys.get("colorspace_jpeg"),
            "outcolorspace": keys.get("colorspace_data"),
        }
        if keys.get("header"):
            stream = base64.b64decode(keys["header"]) + stream + _END_OF_JPEG
        return decode_jpeg(stream, **{name: value for name, value in colours.items() if value is not None})


class RegisteredJpegCodec(_StreamCodec):
    """zarr v3 `jpeg`, as proposed for the registry (zarr-extensions, pull request 66): each chunk a complete JPEG.

    Its chunks are (height, width), (height, width, 1) or (height, width, 3). Read only: we write `imagecodecs_jpeg`
    until the registry has it. The quality and the subsampling concern encoding.
    """

    codec_name = "jpeg"
    known_keys = frozenset({"quality", "subsampling", "encoded_color_space", "decoded_color_space"})

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        codec = super().from_dict(data)
        for key, known in (("encoded_color_space", _ENCODED), ("decoded_color_space", _DECODED)):
            value = codec.configuration.get(key)
            if value is not None and str(value).casefold() not in known:
                raise ValueError(f"{cls.codec_name}: {key} {value!r} cannot be read here; known: {', '.join(known)}")
        return codec

    def pixels_of(self, stream: bytes) -> Pixels:
        encoded = str(self.configuration.get("encoded_color_space", "")).casefold()
        if encoded == "rgb":  # a stream without an Adobe marker would be taken for Y, Cb, Cr
            return decode_jpeg(stream, colorspace="RGB", outcolorspace="RGB")
        return decode_jpeg(stream)


class Jpeg2000Codec(_StreamCodec):
    """zarr v3 `imagecodecs_jpeg2k`: each chunk a JPEG 2000 codestream. All its keys concern encoding."""

    codec_name = "imagecodecs_jpeg2k"
    known_keys = frozenset(
        {"level", "codecformat", "colorspace", "planar", "tile", "bitspersample", "resolutions", "reversible"}
        | {"mct", "verbose", "numthreads"}
    )

    def pixels_of(self, stream: bytes) -> Pixels:
        return decode_jpeg_2000(stream)
