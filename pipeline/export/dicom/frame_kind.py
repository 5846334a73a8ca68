"""What DICOM states of a level's frames: transfer syntax and colours, read from the streams themselves.

A tag or attribute of the slide's file does not count: it is often wrong, and the store has not kept it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.codecs import jpeg, jpeg2000
from pipeline.codecs.images import white_jpeg, white_jpeg_2000
from pipeline.codecs.jpeg_segments import ANY_FRAME, EOI, segments
from pipeline.codecs.stream_header import StreamError
from pipeline.store.reading.reader import LevelArray

_TRANSFER_SYNTAXES = {0xC0: "1.2.840.10008.1.2.4.50", 0xC1: "1.2.840.10008.1.2.4.51"}
"""Of JPEG, by its frame header: baseline and extended."""
JPEG_METHOD = "ISO_10918_1"
"""DICOM's name of compression with loss by JPEG."""
_JPEG_2000_LOSSLESS, _JPEG_2000 = "1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.91"


class OtherKindError(Exception):
    """Reason why a level's streams cannot be the frames of one DICOM file."""


@dataclass(frozen=True)
class FrameKind:
    """How the frames of a level are encoded, as DICOM states it once for all of them."""

    transfer_syntax: str
    photometric: str
    lossy_method: str
    """As DICOM names it; "" if lossless."""


LOSSLESS_JPEG_2000 = FrameKind(_JPEG_2000_LOSSLESS, "YBR_RCT", "")
"""Of pixels that are encoded here."""


class FrameKinds:
    """The one kind of a level's streams.

    Raises:
        OtherKindError: DICOM has no frames of this kind, or the level has no chunks.
    """

    def __init__(self, level: LevelArray) -> None:
        codec = level.codec
        if codec not in ("imagecodecs_jpeg", "imagecodecs_jpeg2k"):
            raise OtherKindError(f"stored as {codec}")
        self._is_jpeg, self._chunk_px = codec == "imagecodecs_jpeg", level.chunk_px
        self.name = "JPEG" if self._is_jpeg else "JPEG 2000"
        first = level.array.first_chunk()
        if first is None:
            raise OtherKindError("all of it is white")
        self._start, self.kind = self._of(first)
        self.white = self._white(first, level.chunk_px)
        """A white stream of the same kind."""

    def check(self, stream: bytes) -> None:
        """Refuse a stream of another kind. Those that begin like the last one, and end, are of the same encoder.

        Raises:
            OtherKindError: it is.
        """
        if not (stream.startswith(self._start) and stream.endswith(EOI)):
            self._start, kind = self._of(stream)
            if kind != self.kind:
                raise OtherKindError(f"stored as {self.name} of several kinds")

    def _of(self, stream: bytes) -> tuple[bytes, FrameKind]:
        """A stream's beginning, and its kind."""
        try:
            return (_jpeg_kind if self._is_jpeg else _jpeg_2000_kind)(stream, self._chunk_px)
        except StreamError as error:
            raise OtherKindError(f"stored as {self.name} that DICOM does not know: {error}") from error

    def _white(self, like: bytes, side_px: int) -> bytes:
        if self._is_jpeg:
            header = jpeg.read_header(like)
            return white_jpeg(side_px, is_rgb=header.holds_rgb(), sampling=header.sampling[0])
        return white_jpeg_2000(side_px)


def _jpeg_kind(stream: bytes, side_px: int) -> tuple[bytes, FrameKind]:
    jpeg.check_end(stream)
    header, parts = jpeg.read_header(stream), list(segments(stream))
    header.check_is_tile(side_px, side_px)
    processes = [part.marker for part in parts if part.marker in ANY_FRAME]
    if len(processes) != 1:
        raise StreamError(f"it has {len(processes)} frame headers")
    if processes[0] not in _TRANSFER_SYNTAXES:
        raise OtherKindError("stored as progressive JPEG, which DICOM does not know")
    # Of Y, Cb, Cr of any sampling: PS3.5, 8.2.1.
    photometric = "RGB" if header.holds_rgb() else "YBR_FULL_422"
    return stream[: parts[-1].end], FrameKind(_TRANSFER_SYNTAXES[processes[0]], photometric, JPEG_METHOD)


def _jpeg_2000_kind(stream: bytes, side_px: int) -> tuple[bytes, FrameKind]:
    parsed = jpeg2000.parse(stream)
    parsed.header.check_is_tile(side_px, side_px)
    if not stream.startswith(jpeg2000.START):
        raise StreamError("it is in the boxes of a JP2 file")
    is_reversible, has_transform = parsed.header.is_reversible, parsed.header.has_colour_transform
    photometric = ("YBR_RCT" if is_reversible else "YBR_ICT") if has_transform else "RGB"
    if is_reversible:
        return parsed.own_start, FrameKind(_JPEG_2000_LOSSLESS, photometric, "")
    return parsed.own_start, FrameKind(_JPEG_2000, photometric, "ISO_15444_1")
