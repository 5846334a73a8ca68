"""Image codecs: the only parsers of JPEG and JPEG 2000, and the only calls of libraries that decode or encode."""

from typing import TYPE_CHECKING

from training.foundation.lazy import lazy_names

if TYPE_CHECKING:
    from pipeline.codecs.images import decode_jpeg, decode_jpeg_2000, encode_jpeg, encode_jpeg_2000
    from pipeline.codecs.types import DecodeError, Pixels, Stream, StreamCodec
__all__ = [
    "DecodeError", "Pixels", "Stream", "StreamCodec", "decode_jpeg", "decode_jpeg_2000", "encode_jpeg",
    "encode_jpeg_2000",
]  # fmt: skip
__getattr__ = lazy_names(__name__, {n: f"pipeline.codecs.{'images' if '_' in n else 'types'}" for n in __all__})
