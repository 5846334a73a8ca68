"""Image codecs: the only parsers of JPEG and JPEG 2000, and the only calls of libraries that decode or encode."""

from typing import TYPE_CHECKING

from training.foundation.lazy import public_names

if TYPE_CHECKING:
    from pipeline.codecs.images import decode_jpeg as decode_jpeg
    from pipeline.codecs.images import decode_jpeg_2000 as decode_jpeg_2000
    from pipeline.codecs.images import encode_jpeg as encode_jpeg
    from pipeline.codecs.images import encode_jpeg_2000 as encode_jpeg_2000
    from pipeline.codecs.types import DecodeError as DecodeError
    from pipeline.codecs.types import Pixels as Pixels
    from pipeline.codecs.types import Stream as Stream
    from pipeline.codecs.types import StreamCodec as StreamCodec

__all__, __getattr__ = public_names(
    __name__,
    {
        "dicom_frames": "DicomFrameDecoder",
        "images": "decode_jpeg decode_jpeg_2000 decode_jpeg_small encode_jpeg encode_jpeg_2000",
        "jpeg": "JpegError read_header",
        "stream_header": "StreamError",
        "strict": "eighth_of_jpeg FACTOR",
        "tiff_segments": "decode_page decode_tile",
        "tile_streams": "ParsedTile TileStreams",
        "types": "DecodeError Pixels Stream StreamCodec",
    },
    modules="jpeg jpeg2000",
)
