"""Ways to hide a text or a whole label in a JPEG or JPEG 2000 stream so that no decoder of its pixels notices."""

from __future__ import annotations

import struct
from collections.abc import Callable

import cv2
import imagecodecs
import numpy as np
from numpy.typing import NDArray

SCAN, TILE_PART, DATA = b"\xff\xda", b"\xff\x90", b"\xff\x93"
EOI = b"\xff\xd9"

Leak = Callable[[bytes, bytes], bytes]
"""(stream, secret) → stream with the secret."""


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def first_scan(stream: bytes) -> int:
    """Offset of the first scan header."""
    at = 2
    while stream[at : at + 2] != SCAN:
        # 0xFF before a marker is a fill byte.
        at += 1 if stream[at + 1] == 0xFF else 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
    return at


def _into(marker: int, body: bytes) -> bytes:
    """Split `body` into as many segments as it takes."""
    most = 60_000
    return b"".join(segment(marker, body[at : at + most]) for at in range(0, len(body), most))


def behind_the_end(stream: bytes, secret: bytes) -> bytes:
    return stream + secret


def behind_the_end_and_ended_again(stream: bytes, secret: bytes) -> bytes:
    return stream + secret + EOI


def in_a_comment(stream: bytes, secret: bytes) -> bytes:
    return stream[:2] + _into(0xFE, secret) + stream[2:]


def in_a_comment_before_the_scan(stream: bytes, secret: bytes) -> bytes:
    at = first_scan(stream)
    return stream[:at] + b"\xff\xff" + _into(0xFE, secret) + stream[at:]


def in_a_comment_before_the_end(stream: bytes, secret: bytes) -> bytes:
    return stream[:-2] + _into(0xFE, secret) + EOI


def in_application_data(stream: bytes, secret: bytes) -> bytes:
    return stream[:2] + b"".join(_into(0xE0 + i, b"Exif\0\0" + secret) for i in range(16)) + stream[2:]


def in_a_number_of_lines(stream: bytes, secret: bytes) -> bytes:
    """In DNL, the only segment besides comments and application data that decoders skip."""
    at = first_scan(stream)
    return stream[:at] + _into(0xDC, secret) + stream[at:]


def in_a_jfif_thumbnail(stream: bytes, secret: bytes) -> bytes:
    width = -(-len(secret) // 3) % 256
    body = b"JFIF\0\1\1\1Ja\0\1" + bytes([width, 1]) + secret
    rest = stream[20:] if stream[2:11] == b"\xff\xe0\0\x10JFIF\0" else stream[2:]
    return stream[:2] + segment(0xE0, body[:60_000]) + segment(0xE0, b"JFXX\0\x13" + secret[:60_000]) + rest


def in_a_table_that_no_scan_uses(stream: bytes, secret: bytes) -> bytes:
    at = first_scan(stream)
    values = secret[:64].ljust(64, b" ")
    tables = segment(0xDB, b"\3" + values) + segment(0xC4, b"\x13" + bytes([0] * 15 + [64]) + values)
    return stream[:at] + tables + stream[at:]


def in_a_table_that_is_defined_again(stream: bytes, secret: bytes) -> bytes:
    values = secret[:64].ljust(64, b" ")
    tables = segment(0xDB, b"\0" + values) + segment(0xC4, b"\0" + bytes([0] * 15 + [64]) + values)
    return stream[:2] + tables + stream[2:]


JPEG_LEAKS: tuple[Leak, ...] = (
    behind_the_end, behind_the_end_and_ended_again, in_a_comment, in_a_comment_before_the_scan,
    in_a_comment_before_the_end, in_application_data, in_a_number_of_lines, in_a_table_that_no_scan_uses,
    in_a_table_that_is_defined_again, in_a_jfif_thumbnail,
)  # fmt: skip


def between_the_scans(stream: bytes, secret: bytes) -> bytes:
    """In a progressive stream, before every scan but the first."""
    first, *others = stream.split(SCAN)
    assert len(others) > 1
    return first + SCAN + (_into(0xFE, secret) + SCAN).join(others)


def adobe_fields(stream: bytes, secret: bytes) -> bytes:
    """Six bytes in the version and flags of Adobe's segment, which states the colour transform."""
    assert stream[2:11] == b"\xff\xee\0\x0eAdobe"
    return stream[:11] + secret[:6] + stream[17:]


REFUSED_JPEG_LEAKS: dict[str, Leak] = {
    "behind a Huffman table": lambda stream, secret: _longer(stream, 0xC4, secret),
    "behind a quantisation table": lambda stream, secret: _longer(stream, 0xDB, secret),
    "behind a frame header": lambda stream, secret: _longer(stream, 0xC0, secret),
    "behind a scan header": lambda stream, secret: _longer(stream, 0xDA, secret),
    "behind a restart marker without an interval": lambda stream, secret: stream[:-2] + b"\xff\xd0" + secret + EOI,
}


def _longer(stream: bytes, marker: int, secret: bytes) -> bytes:
    at = 2
    while stream[at + 1] != marker:
        at += 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
    end = at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
    return stream[:at] + segment(marker, stream[at + 4 : end] + secret) + stream[end:]


def in_boxes(stream: bytes, secret: bytes) -> bytes:
    """In a JP2 file around the codestream: an XML box before it and a UUID box after it."""
    width, height = struct.unpack_from(">II", stream, 8)
    size = struct.pack(">IIHBBBB", height, width, 3, 7, 7, 0, 0)
    boxes = [
        box(b"jP  ", b"\r\n\x87\n"),
        box(b"ftyp", b"jp2 \0\0\0\0jp2 "),
        box(b"jp2h", box(b"ihdr", size) + box(b"colr", b"\1\0\0\0\0\0\x10")),
        box(b"xml ", b"<patient>" + secret + b"</patient>"),
        box(b"jp2c", stream),
        box(b"uuid", bytes(16) + secret),
    ]
    return b"".join(boxes)


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", len(body) + 8, kind) + body


def in_a_main_header_comment(stream: bytes, secret: bytes) -> bytes:
    at = stream.index(TILE_PART)
    return stream[:at] + _into(0x64, b"\0\1" + secret) + stream[at:]


def in_a_main_header_segment_nobody_needs(stream: bytes, secret: bytes) -> bytes:
    """In the component registration (CRG, four bytes per component) and a segment of another part of the standard."""
    at = stream.index(TILE_PART)
    return stream[:at] + segment(0x63, secret[:12]) + _into(0x59, secret) + stream[at:]


def in_a_tile_part_comment(stream: bytes, secret: bytes) -> bytes:
    """After the header of the tile part, whose length is corrected."""
    at = stream.index(TILE_PART)
    (length,) = struct.unpack_from(">I", stream, at + 6)
    hidden = _into(0x64, b"\0\1" + secret) + segment(0x58, b"\0" + secret[:60])  # lengths of packets: 7-bit bytes
    longer = struct.pack(">I", length + len(hidden))
    return stream[: at + 6] + longer + stream[at + 10 : at + 12] + hidden + stream[at + 12 :]


def with_an_open_end(stream: bytes, secret: bytes) -> bytes:
    """After the end, with a tile part that gives its length as 0."""
    at = stream.index(TILE_PART)
    return stream[: at + 6] + bytes(4) + stream[at + 10 :] + secret


JPEG_2000_LEAKS: tuple[Leak, ...] = (
    behind_the_end, in_a_main_header_comment, in_a_main_header_segment_nobody_needs, in_a_tile_part_comment,
)  # fmt: skip


def label_image() -> NDArray[np.uint8]:
    """A small label with writing on it, uint8 (80, 160, 3)."""
    label = np.full((80, 160, 3), 250, np.uint8)
    for line, text in enumerate(("ROE, JANE", "1950-02-03", "5P-A9K0")):
        cv2.putText(label, text, (8, 24 + 24 * line), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (20, 20, 60 * line), 1)
    return label


def label_jpeg() -> bytes:
    return bytes(imagecodecs.jpeg8_encode(label_image(), level=80))
