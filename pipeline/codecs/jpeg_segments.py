"""The segments of a JPEG stream (ITU-T T.81, annex B): walking them, and checking what each must hold, to the byte.

Only what a decoder of pixels needs is known here. Comments, application data and unknown segments are skipped and
dropped; a segment with a byte more or less than its content needs is damaged, as it is to libjpeg.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.codecs.stream_header import StreamError

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
HUFFMAN_FRAMES = {0xC0, 0xC1, 0xC2}
"""Frame headers of the processes that pass through: baseline, extended and progressive."""
ANY_FRAME = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xF7}
"""Frame headers of every JPEG process and of JPEG-LS."""
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
_START_OF_IMAGE = 0xD8
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}
_HUFFMAN_TABLES, _QUANTISATION_TABLES, _RESTART_INTERVAL = 0xC4, 0xDB, 0xDD
_JFIF_MARKER, _ADOBE_MARKER = 0xE0, 0xEE
_JFIF_BYTES, _ADOBE_BYTES = 14, 12
_MAX_TABLE, _MAX_SYMBOLS = 3, 256

JFIF = b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
"""Version 1.1, square pixels of no stated size, no thumbnail: as libjpeg writes it."""
_ADOBE = b"Adobe\0\x64\0\0\0\0"
"""Version 100, no flags; the colour transform follows."""

Key = tuple[str, int]
"""Name of what a definition defines, for example ("AC", 1)."""
COLOUR_MARKERS: frozenset[Key] = frozenset({("JFIF", 0), ("Adobe", 0)})


class JpegError(StreamError):
    """The bytes are not a JPEG stream this project can pass through."""


@dataclass(frozen=True)
class Segment:
    """A marker segment in its stream."""

    at: int
    """Position of its marker."""
    end: int
    marker: int
    body: bytes
    """The bytes after the length; empty at the end of the image."""


@dataclass(frozen=True)
class Frame:
    """The frame header."""

    width_px: int
    height_px: int
    bits: int
    is_progressive: bool
    components: tuple[tuple[int, int, int], ...]
    """Identifier, sampling factors and quantisation table of each."""


def segments(stream: bytes, at: int = len(SOI)) -> Iterator[Segment]:
    """The segments from a byte on, up to and including the next scan header or the end of the image.

    Raises:
        JpegError: there is something other than a segment, or it is cut short.
    """
    while True:
        if stream[at : at + 1] != b"\xff" or at + 2 > len(stream):
            raise JpegError(f"no marker at byte {at} of its {len(stream)}")
        marker = stream[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        if marker == END_OF_IMAGE:
            yield Segment(at, at + 2, marker, b"")
            return
        end = at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
        if marker in (0, _START_OF_IMAGE) or not at + 4 <= end <= len(stream):
            raise JpegError(f"no whole segment ({stream[at : at + 2].hex()}) at byte {at} of its {len(stream)}")
        yield Segment(at, end, marker, stream[at + 4 : end])
        if marker == START_OF_SCAN:
            return
        at = end


def read_frame(segment: Segment) -> Frame:
    """Read a frame header.

    Raises:
        JpegError: it has no components, or its length does not match theirs.
    """
    body = segment.body
    if len(body) < 9 or len(body) != 6 + 3 * body[5]:
        raise JpegError(f"a frame header of {len(body)} bytes")
    bits, height_px, width_px, _ = struct.unpack_from(">BHHB", body)
    components = tuple((body[i], body[i + 1], body[i + 2]) for i in range(6, len(body), 3))
    return Frame(width_px, height_px, bits, segment.marker == 0xC2, components)


def keys_of_scan(body: bytes, frame: Frame) -> set[Key]:
    """The definitions that a scan is decoded with.

    Raises:
        JpegError: its length does not match its components, or these are not the frame's.
    """
    if not body or len(body) != 4 + 2 * body[0]:
        raise JpegError(f"a scan header of {len(body)} bytes")
    first, successive = body[-3], body[-1]
    keys: set[Key] = {*COLOUR_MARKERS, ("restart", 0)}
    for i in range(1, len(body) - 3, 2):
        tables = [table for name, _, table in frame.components if name == body[i]]
        if not tables:
            raise JpegError(f"a scan of component {body[i]}, which its frame does not have")
        keys.update(("quantisation", table) for table in tables)
        if not frame.is_progressive or (first == 0 and successive < 0x10):
            keys.add(("DC", body[i + 1] >> 4))
        if not frame.is_progressive or first > 0:
            keys.add(("AC", body[i + 1] & 15))
    return keys


def definitions(segment: Segment) -> list[tuple[Key, bytes]]:
    """Definitions of a segment for the scans after it, rewritten if it has room for more; [] if pixels need none.

    Raises:
        JpegError: bytes are missing or left over.
    """
    body = segment.body
    if segment.marker == _QUANTISATION_TABLES:
        return _quantisation_tables(body)
    if segment.marker == _HUFFMAN_TABLES:
        return _huffman_tables(body)
    if segment.marker == _RESTART_INTERVAL:
        if len(body) != 2:
            raise JpegError(f"a restart interval of {len(body)} bytes")
        return [(("restart", 0), body)]
    if segment.marker == _JFIF_MARKER and body.startswith(JFIF[:5]) and len(body) >= _JFIF_BYTES:
        return [(("JFIF", 0), JFIF)]
    if segment.marker == _ADOBE_MARKER and body.startswith(_ADOBE[:5]) and len(body) >= _ADOBE_BYTES:
        return [(("Adobe", 0), adobe(body[11]))]
    return []


def adobe(transform: int) -> bytes:
    """Body of Adobe's segment: 0 for R, G, B; 1 for Y, Cb, Cr, as which decoders take whatever they do not know."""
    return _ADOBE + bytes([transform if transform in (0, 1, 2) else 1])


def packed(marker: int, body: bytes) -> bytes:
    """A segment's bytes."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def app14_rgb() -> bytes:
    """Adobe's segment with transform 0: the three components are R, G, B."""
    return packed(_ADOBE_MARKER, adobe(0))


def _quantisation_tables(body: bytes) -> list[tuple[Key, bytes]]:
    tables: list[tuple[Key, bytes]] = []
    at = 0
    while at < len(body):
        precision, table = body[at] >> 4, body[at] & 15
        end = at + 1 + 64 * (1 + precision)
        if precision > 1 or table > _MAX_TABLE or end > len(body):
            raise JpegError(f"{len(body) - at} stray bytes after {len(tables)} quantisation tables")
        tables.append((("quantisation", table), body[at:end]))
        at = end
    return tables


def _huffman_tables(body: bytes) -> list[tuple[Key, bytes]]:
    tables: list[tuple[Key, bytes]] = []
    at = 0
    while at < len(body):
        kind, table = body[at] >> 4, body[at] & 15
        symbols = sum(body[at + 1 : at + 17])
        end = at + 17 + symbols
        if kind > 1 or table > _MAX_TABLE or symbols > _MAX_SYMBOLS or end > len(body):
            raise JpegError(f"{len(body) - at} stray bytes after {len(tables)} Huffman tables")
        tables.append((("AC" if kind else "DC", table), body[at:end]))
        at = end
    return tables
