"""A DICOM frame as a self-contained stream: padding removed, colours stated, size checked."""

from __future__ import annotations

from pipeline.codecs import jpeg
from pipeline.codecs.jpeg2000 import Jpeg2000Header
from pipeline.codecs.jpeg_header import JpegHeader
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.tile_streams import TileRule, TileStreams
from pipeline.codecs.types import Stream, StreamCodec
from pipeline.slides.common.colours import FileColours
from pipeline.slides.common.slide import NotCopied
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.dicom.frames import FrameError
from pipeline.slides.dicom.headers.matrix import HIGH_THROUGHPUT_JPEG_2000, JPEG, JPEG_2000, Matrix


class FrameStreams:
    """Turns the frames of one level into complete JPEG or JPEG 2000 streams."""

    def __init__(self, matrix: Matrix, warnings: SlideWarnings) -> None:
        self._matrix = matrix
        size_wh_px = matrix.width_px, matrix.height_px
        self._colours = FileColours(
            matrix.photometric == "RGB", "attribute Photometric Interpretation", size_wh_px, warnings
        )
        codec: StreamCodec = "imagecodecs_jpeg" if matrix.transfer_syntax in JPEG else "imagecodecs_jpeg2k"
        self.rule = TileRule(codec, (matrix.tile_w_px, matrix.tile_h_px), says_rgb=self._colours.says_rgb)
        self._streams = TileStreams(self.rule, self._check)

    def stream(self, payload: memoryview) -> Stream:
        """The buffers of one frame, without the padding after its image; () for an empty one.

        Raises:
            FrameError: cut short, of another size than the file says, or of colours that cannot be determined.
        """
        if not len(payload):
            return ()
        try:
            return self._streams.stream(payload, payload, 0, len(payload))
        except StreamError as error:
            raise FrameError(str(error)) from error

    def colours_as_said(self, payload: memoryview) -> bool:
        """Whether a frame's stream holds the colours that the file's attribute states; decoders differ if it does not.

        Raises:
            FrameError: as `stream`.
        """
        if self._matrix.transfer_syntax in JPEG:
            stream = b"".join(self.stream(payload))
            return jpeg.read_header(stream).holds_rgb() == self._colours.says_rgb
        self.stream(payload)
        return self._matrix.photometric in ("RGB", "YBR_ICT", "YBR_RCT")

    def _check(self, header: JpegHeader | Jpeg2000Header) -> None:
        if isinstance(header, JpegHeader):
            self._colours.holds_rgb(header)  # warns if the file says otherwise
        elif not header.has_colour_transform and self._matrix.photometric != "RGB":
            raise FrameError(
                f"its JPEG 2000 stream has no colour transform and the file says {self._matrix.photometric}: "
                "whether that is R, G, B or Y, Cb, Cr cannot be determined"
            )


def why_not_a_stream(matrix: Matrix) -> NotCopied | None:
    """None if frames can be stored as they are; else the reason."""
    if matrix.transfer_syntax in HIGH_THROUGHPUT_JPEG_2000:
        return NotCopied("compressed with high-throughput JPEG 2000, which few store readers support")
    if matrix.transfer_syntax not in JPEG | JPEG_2000:
        return NotCopied("not compressed with JPEG or JPEG 2000")
    if matrix.tile_w_px != matrix.tile_h_px:
        return NotCopied(f"frames are {matrix.tile_w_px}×{matrix.tile_h_px} px, not square")
    return None
