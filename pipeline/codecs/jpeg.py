"""JPEG streams as bytes: one parser that makes a scanner's tile self-contained and copies only what it knows.

A TIFF keeps the Huffman and quantisation tables once (JPEGTables) and each tile without them. A tile in the store must
be self-contained: tables are put back, and an APP14 marker is added if the components are R, G, B and no marker says
so, because a decoder that sees neither JFIF nor APP14 takes three components for YCbCr. What no pixel depends on is
dropped, wherever it is: comments, application data, tables that no scan uses, and everything after the end of the
image.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from pipeline.codecs.jpeg_header import JpegHeader
from pipeline.codecs.jpeg_segments import (
    ANY_FRAME,
    COLOUR_MARKERS,
    END_OF_IMAGE,
    EOI,
    HUFFMAN_FRAMES,
    SOI,
    START_OF_SCAN,
    Frame,
    JpegError,
    Key,
    Segment,
    app14_rgb,
    definitions,
    keys_of_scan,
    packed,
    read_frame,
    segments,
)
from pipeline.codecs.stream_header import StreamHeader

# In coded data 0xFF precedes 0 (a stuffed byte), a restart marker, or the marker that ends the scan, with as many more
# 0xFF before it as the encoder likes.
_ENDS_SCAN = re.compile(rb"\xff+[^\xff\x00]")
_ENDS_SCAN_WITH_RESTARTS = re.compile(rb"\xff+[^\xff\x00\xd0-\xd7]")
_FILL = re.compile(rb"\xff{2,}")
_MAX_KNOWN_BYTES = 2**16
"""Of a stream's start, to be kept in memory."""

__all__ = [
    "EOI", "SOI", "Jpeg", "JpegError", "JpegHeader", "JpegStart", "check_claim", "check_end", "claimed_headers",
    "count_marks", "parse", "read_header",
]  # fmt: skip


@dataclass(frozen=True)
class JpegStart:
    """The bytes with which the tiles of one encoder begin, and their replacement in a complete stream."""

    own: bytes
    """A tile's bytes up to its only scan's coded data."""
    head: bytes
    has_restarts: bool

    @cached_property
    def num_marks(self) -> int:
        """Smallest `count_marks` of a tile that begins like this; a tile with something hidden in it has more."""
        return count_marks(self.own) + 1

    def end(self, data: bytes | memoryview, start: int, end: int) -> int | None:
        """End of the image of a tile in `data[start:end]` that begins like this: just after its first EOI.

        None if something other than EOI ends the coded data: such a tile must be parsed.
        """
        if data[end - len(EOI) : end] == EOI and count_marks(data[start:end]) == self.num_marks:
            return end  # no marker but those of the start and this one: faster than to look for the first
        match = _end_of_scan(self.has_restarts).search(data, start + len(self.own), end)
        if match is None or match.end() != match.start() + len(EOI) or data[match.end() - 1] != END_OF_IMAGE:
            return None
        return match.end()


@dataclass(frozen=True)
class Jpeg:
    """A parsed stream: only what its pixels need."""

    header: JpegHeader
    own_start: bytes
    """The stream's own bytes up to the first scan's coded data."""
    _definitions: bytes
    """The bytes between SOI and the first scan's coded data."""
    coded: bytes
    """From there on, up to and including the first EOI."""
    has_one_scan: bool
    has_restarts: bool

    def head(self, *, is_rgb: bool) -> bytes:
        """The bytes before the coded data in a complete stream.

        Args:
            is_rgb: whether the file says that its components are R, G, B; it counts if the stream itself does not say.
        """
        needs_marker = self.header.adobe_transform is None and self.header.holds_rgb(file_says_rgb=is_rgb)
        return SOI + (app14_rgb() if needs_marker else b"") + self._definitions

    def start(self, *, is_rgb: bool) -> JpegStart | None:
        """Start shared by tiles of the same encoder; None if there is more to the stream than a start and one scan."""
        return JpegStart(self.own_start, self.head(is_rgb=is_rgb), self.has_restarts) if self.has_one_scan else None


def parse(stream: bytes, tables: bytes | None = None) -> Jpeg:
    """Read a stream up to its first end marker.

    Args:
        tables: the level's JPEGTables (SOI … EOI) or None.

    Raises:
        JpegError: not a JPEG, of a process other than baseline, extended or progressive, damaged or cut short.
    """
    _check_start(stream)
    return _Parser(stream, tables).parsed()


def read_header(stream: bytes, tables: bytes | None = None, *, any_process: bool = False) -> JpegHeader:
    """Read the header of a stream, which may be cut short after its first scan's header.

    Args:
        tables: the level's JPEGTables (SOI … EOI) or None.
        any_process: accept processes that do not pass through, such as lossless or arithmetic coding.

    Raises:
        JpegError: not a JPEG, of a process that is not accepted, or damaged before its scan.
    """
    _check_start(stream)
    end = next((segment.end for segment in segments(stream) if segment.marker == START_OF_SCAN), len(stream))
    read = _known_header if end <= _MAX_KNOWN_BYTES else _header
    return read(stream[:end], tables, any_process)


def _header(start: bytes, tables: bytes | None, any_process: bool) -> JpegHeader:
    """The header in a stream's bytes up to its first scan's coded data."""
    return _Parser(start, tables, ANY_FRAME if any_process else HUFFMAN_FRAMES).header()


_known_header = lru_cache(maxsize=64)(_header)
"""Those bytes are the same in most tiles of a level."""


def check_claim(stream: bytes, max_bytes: int) -> None:
    """Check that a decoder allocates `max_bytes` of pixels at most: it trusts the frame header, of any process.

    Raises:
        StreamError: more, or not a JPEG.
    """
    for header in claimed_headers(stream):
        header.check_claim(max_bytes)


def claimed_headers(stream: bytes) -> list[StreamHeader]:
    """Read the frame headers before the first scan, of any process.

    Raises:
        JpegError: not a JPEG, or damaged before its first scan.
    """
    _check_start(stream)
    frames = [read_frame(segment) for segment in segments(stream) if segment.marker in ANY_FRAME]
    return [StreamHeader(frame.width_px, frame.height_px, len(frame.components), frame.bits) for frame in frames]


def _check_start(stream: bytes) -> None:
    if not stream.startswith(SOI):
        raise JpegError(f"starts with {stream[:2].hex()}, not ffd8")


def check_end(stream: bytes) -> None:
    """Refuse a stream that was cut short or overwritten at its end: decoders silently fill the rest with grey.

    Raises:
        JpegError: no end marker.
    """
    if stream.rfind(EOI) < 0:
        raise JpegError(f"its {len(stream)} bytes have no end marker (ffd9)")


def count_marks(data: bytes | bytearray | memoryview) -> int:
    """Count 0xFF before anything but 0, at memory speed: markers, if all of it is coded data."""
    values = np.frombuffer(data, np.uint8)
    is_ff = (values[:-1] == 0xFF).view(np.uint8)
    return int(np.count_nonzero(np.minimum(is_ff, values[1:], out=is_ff).view(np.bool_)))


def _end_of_scan(has_restarts: bool) -> re.Pattern[bytes]:
    return _ENDS_SCAN_WITH_RESTARTS if has_restarts else _ENDS_SCAN


@dataclass
class _Definition:
    key: Key
    body: bytes
    is_used: bool = False


class _Parser:
    """Collects a stream's pieces; which definitions the scans use is known once the last scan has been read."""

    def __init__(self, stream: bytes, tables: bytes | None, frames: Collection[int] = HUFFMAN_FRAMES) -> None:
        self._stream, self._tables, self._frames = stream, tables, frames
        self._frame: Frame | None = None
        self._current: dict[Key, _Definition] = {}
        self._has_marker_in_tables = False
        self._pieces: list[bytes | tuple[int, list[_Definition]]] = []
        """Bytes as they are; or a segment's marker and what it defines."""

    def parsed(self) -> Jpeg:
        self._take_tables()
        scan, frame = self._first_scan()
        header, has_restarts = self._header(frame), self._has_restarts()
        own_start, num_first = self._stream[: scan.end], len(self._pieces)
        num_scans, following = 1, self._next_scan(self._coded_data(scan.end))
        while following is not None:
            num_scans += 1
            following = self._next_scan(self._coded_data(following.end))
        first, rest = self._joined(self._pieces[:num_first]), self._joined(self._pieces[num_first:])
        return Jpeg(header, own_start, first, rest + EOI, num_scans == 1, has_restarts)

    def header(self) -> JpegHeader:
        """Read everything before the first scan."""
        self._take_tables()
        return self._header(self._first_scan()[1])

    def _take_tables(self) -> None:
        for segment in segments(_ended(self._tables)) if self._tables else ():
            if segment.marker == START_OF_SCAN:
                raise JpegError("a scan in its shared tables")
            self._take(segment)
        self._has_marker_in_tables = any(key in self._current for key in COLOUR_MARKERS)

    def _first_scan(self) -> tuple[Segment, Frame]:
        scan = self._next_scan(len(SOI))
        if scan is None or self._frame is None:
            raise JpegError("no scan after a baseline, extended or progressive frame header")
        return scan, self._frame

    def _header(self, frame: Frame) -> JpegHeader:
        names, sampling, _ = zip(*frame.components, strict=True)
        adobe = self._current.get(("Adobe", 0))
        return JpegHeader(
            frame.width_px, frame.height_px, len(names), frame.bits, tuple((byte >> 4, byte & 15) for byte in sampling),
            ("JFIF", 0) in self._current, None if adobe is None else adobe.body[-1], bytes(names),
            self._has_marker_in_tables,
        )  # fmt: skip

    def _has_restarts(self) -> bool:
        """Whether there is an interval. Without one, a restart marker ends the image for libjpeg: the rest is lost."""
        interval = self._current.get(("restart", 0))
        return interval is not None and interval.body != bytes(2)

    def _next_scan(self, at: int) -> Segment | None:
        """Take everything before the next scan, and its header; None at the end of the image."""
        for segment in segments(self._stream, at):
            if segment.marker == START_OF_SCAN:
                self._scan_header(segment)
                return segment
            self._take(segment)
        return None

    def _take(self, segment: Segment) -> None:
        if segment.marker in self._frames:
            if self._frame is not None:
                raise JpegError("two frame headers")
            self._frame = read_frame(segment)
            self._pieces.append(packed(segment.marker, segment.body))
            return
        defined = [_Definition(key, body) for key, body in definitions(segment)]
        if self._has_marker_in_tables and any(definition.key in COLOUR_MARKERS for definition in defined):
            # The stream's own marker overrides whatever the tables say of colours.
            self._current = {key: kept for key, kept in self._current.items() if key not in COLOUR_MARKERS}
            self._has_marker_in_tables = False
        self._current.update({definition.key: definition for definition in defined})
        self._pieces.append((segment.marker, defined))

    def _scan_header(self, segment: Segment) -> None:
        if self._frame is None:
            raise JpegError("no baseline, extended or progressive frame header")
        for key in keys_of_scan(segment.body, self._frame):
            if key in self._current:
                self._current[key].is_used = True
        self._pieces.append(packed(segment.marker, segment.body))

    def _coded_data(self, start: int) -> int:
        """Take a scan's coded data. Returns the position of the marker after them."""
        match = _end_of_scan(self._has_restarts()).search(self._stream, start)
        if match is None:
            raise JpegError(f"its {len(self._stream)} bytes have no end marker (ffd9)")
        self._pieces.append(_FILL.sub(b"\xff", self._stream[start : match.start()]))
        return match.end() - 2

    def _joined(self, pieces: list[bytes | tuple[int, list[_Definition]]]) -> bytes:
        joined = []
        for piece in pieces:
            if isinstance(piece, bytes):
                joined.append(piece)
            elif body := b"".join(definition.body for definition in piece[1] if definition.is_used):
                joined.append(packed(piece[0], body))
        return b"".join(joined)


def _ended(tables: bytes) -> bytes:
    """JPEGTables with their end marker, which some writers omit."""
    if not tables.startswith(SOI):
        raise JpegError(f"its shared tables start with {tables[:2].hex()}, not ffd8")
    return tables if tables.endswith(EOI) else tables + EOI
