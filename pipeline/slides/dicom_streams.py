"""A DICOM frame as a stream that stands alone: padding off, colours said, size checked."""

from __future__ import annotations

import numpy as np

from pipeline.slides import jpeg, jpeg2000
from pipeline.slides.dicom_frames import FrameError
from pipeline.slides.dicom_matrix import HIGH_THROUGHPUT_JPEG_2000, JPEG, JPEG_2000, Matrix
from pipeline.slides.slide import Stream, StreamPattern

_CODING_STYLE, _START_OF_TILE = 0xFF52, 0xFF90
_FIRST_SEGMENT_AT = 2
_RUN_LENGTH_HEADER_BYTES, _COLOURS = 64, 3
_SOF_OF_ANY_JPEG = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xF7}
"""Frame headers of every JPEG process and of JPEG-LS."""


class FrameStreams:
    """Turns the frames of one level into complete JPEG or JPEG 2000 streams."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._pattern: StreamPattern | None = None

    def stream(self, payload: memoryview) -> Stream:
        """The buffers of one frame; () for an empty one.

        Raises:
            FrameError: cut short, of another size than the file says, or of colours that cannot be told.
        """
        if not len(payload):
            return ()
        view = payload[: self._end(payload)]
        pattern = self._pattern
        if pattern is None or view[: len(pattern.begins)] != pattern.begins:
            pattern = self._pattern = self._read_pattern(bytes(view))
        return (pattern.head, view[pattern.skip :]) if pattern.head else (view,)

    def colours_as_said(self, payload: memoryview) -> bool:
        """Whether a frame's stream holds the colours that the file's attribute says; decoders differ where it does not.

        Raises:
            FrameError: as `stream`.
        """
        stream = b"".join(self.stream(payload))
        if self._matrix.transfer_syntax in JPEG:
            return _holds_rgb(stream) == (self._matrix.photometric == "RGB")
        return self._matrix.photometric in ("RGB", "YBR_ICT", "YBR_RCT")

    def _end(self, payload: memoryview) -> int:
        """Where the stream ends: items are padded to an even length, some writers pad further."""
        if payload[-2:] == jpeg.EOI:
            return len(payload)
        if payload[-3:-1] == jpeg.EOI:
            return len(payload) - 1
        at = bytes(payload).rfind(jpeg.EOI)
        if at < 0:
            raise FrameError(f"its {len(payload)} bytes have no end marker (ffd9)")
        return at + len(jpeg.EOI)

    def _read_pattern(self, stream: bytes) -> StreamPattern:
        try:
            if self._matrix.transfer_syntax in JPEG:
                return self._jpeg_pattern(stream)
            return self._jpeg_2000_pattern(stream)
        except (jpeg.JpegError, jpeg2000.Jpeg2000Error) as error:
            raise FrameError(str(error)) from error

    def _jpeg_pattern(self, stream: bytes) -> StreamPattern:
        header = jpeg.read_header(stream)
        _check_size(self._matrix, header)
        # The attribute is often wrong, markers are not: it counts only where the stream has none, and not against
        # colours sampled more coarsely than light, which nobody does to R, G, B.
        is_rgb = self._matrix.photometric == "RGB" and not _is_subsampled(stream[: header.length])
        head, skip = jpeg.new_head(stream, header, None, is_rgb=is_rgb)
        return StreamPattern(stream[: header.length], head, skip) if head != jpeg.SOI else _whole(stream, header)

    def _jpeg_2000_pattern(self, stream: bytes) -> StreamPattern:
        _check_size(self._matrix, jpeg2000.read_header(stream))
        main_header, has_colour_transform = _jpeg_2000_main_header(stream)
        if not has_colour_transform and self._matrix.photometric != "RGB":
            raise FrameError(
                f"its JPEG 2000 stream has no colour transform and the file says {self._matrix.photometric}: "
                "whether that is R, G, B or Y, Cb, Cr cannot be told"
            )
        return StreamPattern(main_header, b"", 0)


def check_claimed_size(matrix: Matrix, stream: bytes) -> None:
    """Refuse a JPEG of any process whose own header claims another size, before a decoder makes room for it.

    Raises:
        FrameError: no frame header, or another size.
    """
    for marker, body in _segments(stream, first_at=_FIRST_SEGMENT_AT):
        if marker & 0xFF in _SOF_OF_ANY_JPEG and len(body) >= 6:
            bits, height_px, width_px = body[0], int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
            _check_size(matrix, jpeg.JpegHeader(width_px, height_px, body[5], bits, False, False, 0))
            return
    raise FrameError("it has no JPEG frame header")


def check_run_lengths(matrix: Matrix, payload: bytes) -> None:
    """Refuse a run-length header (PS3.5, G.5) that points outside its frame: the decoder would follow it.

    Raises:
        FrameError: not one segment per colour, segments outside the frame, or far too many bytes.
    """
    if len(payload) > 2 * matrix.frame_bytes + _RUN_LENGTH_HEADER_BYTES:
        raise FrameError(f"its {len(payload)} bytes of run lengths are more than twice the pixels")
    num_segments, *offsets = np.frombuffer(payload[:_RUN_LENGTH_HEADER_BYTES], "<u4").tolist() or [0]
    bounds = [*offsets[:_COLOURS], len(payload)]
    if num_segments != _COLOURS or bounds[0] != _RUN_LENGTH_HEADER_BYTES or bounds != sorted(set(bounds)):
        raise FrameError(f"its run lengths say {num_segments} segments at {bounds[:-1]} of {len(payload)} bytes")


def why_not_a_stream(matrix: Matrix) -> str | None:
    """None when frames can be stored as they are; else the reason."""
    if matrix.transfer_syntax in HIGH_THROUGHPUT_JPEG_2000:
        return "compressed with high-throughput JPEG 2000, which few readers of stores know"
    if matrix.transfer_syntax not in JPEG | JPEG_2000:
        return "not compressed with JPEG or JPEG 2000"
    if matrix.tile_w_px != matrix.tile_h_px:
        return f"frames are {matrix.tile_w_px}×{matrix.tile_h_px} px, not square"
    return None


def _whole(stream: bytes, header: jpeg.JpegHeader) -> StreamPattern:
    """A stream to which nothing need be added."""
    return StreamPattern(stream[: header.length], b"", 0)


def _check_size(matrix: Matrix, header: jpeg.JpegHeader | jpeg2000.Jpeg2000Header) -> None:
    said = (header.width_px, header.height_px, header.components, header.bits)
    if said != (matrix.tile_w_px, matrix.tile_h_px, 3, 8):
        raise FrameError("its stream says {}×{} px with {} components of {} bits".format(*said))


def _segments(stream: bytes, *, first_at: int) -> list[tuple[int, bytes]]:
    """Marker segments up to the first scan or tile: (marker, body)."""
    found = []
    at = first_at
    while at + 4 <= len(stream) and stream[at] == 0xFF:
        marker, length = int.from_bytes(stream[at : at + 2], "big"), int.from_bytes(stream[at + 2 : at + 4], "big")
        if marker in (0xFFDA, _START_OF_TILE):
            break
        found.append((marker, stream[at + 4 : at + 2 + length]))
        at += 2 + max(2, length)
    return found


def _is_subsampled(head: bytes) -> bool:
    """Whether components of a JPEG are sampled at different steps."""
    for marker, body in _segments(head, first_at=_FIRST_SEGMENT_AT):
        if marker & 0xFF in _SOF_OF_ANY_JPEG and len(body) >= 6 + 3 * body[5]:
            return len({body[7 + 3 * i] for i in range(body[5])}) > 1
    return False


def _holds_rgb(stream: bytes) -> bool:
    """Whether libjpeg takes a complete stream's three components for R, G, B: by JFIF, then APP14, then their names."""
    segments = dict(reversed(_segments(stream, first_at=_FIRST_SEGMENT_AT)))
    jfif, adobe = segments.get(0xFFE0, b""), segments.get(0xFFEE, b"")
    if jfif.startswith(b"JFIF"):
        return False
    if adobe.startswith(b"Adobe") and len(adobe) >= 12:
        return adobe[11] == 0
    names = [body[6:15:3] for marker, body in segments.items() if marker & 0xFF in _SOF_OF_ANY_JPEG]
    return names == [b"RGB"]


def _jpeg_2000_main_header(stream: bytes) -> tuple[bytes, bool]:
    """Bytes before the first tile part, and whether its coding style has a multiple component transform (A.6.1)."""
    start = max(0, stream.find(b"\xff\x4f\xff\x51"))
    at = stream.find(_START_OF_TILE.to_bytes(2, "big"), start)
    styles = [body for marker, body in _segments(stream, first_at=start + 2) if marker == _CODING_STYLE]
    if at < 0 or not styles or len(styles[0]) < 5:
        raise FrameError("its JPEG 2000 header is damaged")
    return stream[:at], bool(styles[0][4])
