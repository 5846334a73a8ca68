"""JPEG streams as bytes: reading headers, and making a TIFF's abbreviated tile self-contained.

A TIFF keeps the Huffman and quantisation tables once (JPEGTables) and each tile without them. A tile in the
store must stand alone: tables are put back, and an APP14 marker is added where the file says RGB, because a
decoder that sees neither JFIF nor APP14 takes three components for YCbCr.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
APP14_RGB = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
"""Adobe segment with transform 0: the three components are R, G, B."""

_FRAME_MARKERS = {0xC0, 0xC1, 0xC2}
_ANY_FRAME = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_START_OF_SCAN = 0xDA


class JpegError(ValueError):
    """The bytes are not a JPEG stream this project can pass through."""


@dataclass(frozen=True)
class JpegHeader:
    """What stands before the first scan."""

    width_px: int
    height_px: int
    components: int
    bits: int
    has_jfif: bool
    has_adobe: bool
    length: int
    """Bytes up to the first scan's segment; streams of one encoder often have these in common."""


def read_header(stream: bytes) -> JpegHeader:
    """Walk the markers up to the first scan.

    Raises:
        JpegError: not a JPEG, a frame type other than baseline/extended/progressive, or cut short.
    """
    frame: tuple[int, int, int, int] | None = None
    has_jfif = has_adobe = False
    length = len(SOI)
    for position, marker, body in _segments(stream):
        length = position
        if marker in _FRAME_MARKERS and len(body) >= 6:
            frame = (int.from_bytes(body[3:5], "big"), int.from_bytes(body[1:3], "big"), body[5], body[0])
        has_jfif |= marker == 0xE0 and body[:4] == b"JFIF"
        has_adobe |= marker == 0xEE and body[:5] == b"Adobe"
    if frame is None:
        raise JpegError("no baseline, extended or progressive frame header")
    width_px, height_px, components, bits = frame
    return JpegHeader(width_px, height_px, components, bits, has_jfif, has_adobe, length)


def _segments(stream: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Position, marker and content of the segments up to the first scan's, which is the last (or the stream's end)."""
    if stream[:2] != SOI:
        raise JpegError(f"starts with {stream[:2].hex()}, not ffd8")
    position = len(SOI)
    while position + 4 <= len(stream):
        if stream[position] != 0xFF:
            raise JpegError(f"no marker at byte {position}")
        marker = stream[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
            continue
        length = int.from_bytes(stream[position + 2 : position + 4], "big")
        yield position, marker, stream[position + 4 : position + 2 + length]
        if marker == _START_OF_SCAN:
            return
        position += 2 + length


def check_claim(stream: bytes, max_bytes: int) -> None:
    """A decoder makes room for what a frame says of itself, whatever the file says.

    Raises:
        JpegError: more than `max_bytes` of pixels.
    """
    for _, marker, body in _segments(stream):
        if marker in _ANY_FRAME and len(body) >= 6:
            height_px, width_px, components = struct.unpack_from(">HHB", body, 1)
            if width_px * height_px * components > max_bytes:
                raise JpegError(f"says {width_px}×{height_px} px with {components} components")


def check_end(stream: bytes) -> None:
    """A stream without an end marker was cut short or overwritten; decoders fill the rest with grey and say nothing.

    Raises:
        JpegError: no end marker.
    """
    if stream.rfind(EOI) < 0:
        raise JpegError(f"its {len(stream)} bytes have no end marker (ffd9)")


def missing_head(header: JpegHeader, tables: bytes | None, *, is_rgb: bool) -> bytes:
    """What must stand before a tile's own bytes (less its first two) to make a complete stream of it.

    Args:
        tables: the level's JPEGTables (SOI … EOI) or None.
        is_rgb: the TIFF says photometric RGB; False for YCbCr.
    """
    app14 = APP14_RGB if is_rgb and not header.has_adobe and not header.has_jfif else b""
    return SOI + app14 + (tables[2:-2] if tables else b"")


def new_head(stream: bytes, header: JpegHeader, tables: bytes | None, *, is_rgb: bool) -> tuple[bytes, int]:
    """What must stand in place of a tile's first bytes to make a complete stream of it, and how many these are.

    Besides what is missing (see `missing_head`), comments and application data other than JFIF's and Adobe's own are
    left out: no pixel depends on them, and programs write names, dates and whole EXIF blocks there.
    """
    head = missing_head(header, _without_texts(tables) if tables else None, is_rgb=is_rgb)
    own = stream[: header.length]
    clean = _without_texts(own)
    return (head, len(SOI)) if clean == own else (head + clean[len(SOI) :], header.length)


def _without_texts(segments: bytes) -> bytes:
    """SOI and the segments behind it, less those that may hold text; what is no segment ends the walk and stays."""
    kept, at = [segments[:2]], 2
    while at + 4 <= len(segments) and segments[at] == 0xFF and segments[at + 1] != EOI[1]:
        if segments[at + 1] == 0xFF:  # a fill byte before a marker
            at += 1
            continue
        end = at + 2 + int.from_bytes(segments[at + 2 : at + 4], "big")
        if not _may_hold_text(segments[at + 1], segments[at + 4 : end]):
            kept.append(segments[at:end])
        at = end
    return b"".join([*kept, segments[at:]])


def _may_hold_text(marker: int, body: bytes) -> bool:
    if marker == 0xE0:
        return not (body.startswith(b"JFIF\0") and len(body) == 14)  # longer: with a thumbnail
    if marker == 0xEE:
        return not (body.startswith(b"Adobe") and len(body) == 12)
    return marker == 0xFE or 0xE0 <= marker <= 0xEF
