"""JPEG 2000 streams as bytes: what their header says, and whether they end."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_START, _SIZE, _END = b"\xff\x4f", b"\xff\x51", b"\xff\xd9"
_BOX_FILE = b"\0\0\0\x0cjP  "
"""How a JP2 file starts; the codestream stands in a box inside it."""


class Jpeg2000Error(ValueError):
    """The bytes are not a JPEG 2000 stream this project can pass through."""


@dataclass(frozen=True)
class Jpeg2000Header:
    """From the SIZ segment (ISO/IEC 15444-1, A.5.1)."""

    width_px: int
    height_px: int
    components: int
    bits: int


def read_header(stream: bytes) -> Jpeg2000Header:
    """Read the size segment, which stands right after the start of every codestream.

    Raises:
        Jpeg2000Error: not a codestream (or JP2 file), cut short, or components of unequal kind.
    """
    start = stream.find(_START + _SIZE) if stream.startswith(_BOX_FILE) else 0
    if start < 0 or not stream.startswith(_START + _SIZE, start):
        raise Jpeg2000Error(f"starts with {stream[:4].hex()}, not ff4fff51")
    try:
        right, bottom, left, top = struct.unpack_from(">4I", stream, start + 8)
        (components,) = struct.unpack_from(">H", stream, start + 40)
        kinds = {struct.unpack_from(">3B", stream, start + 42 + 3 * i) for i in range(components)}
    except struct.error as error:
        raise Jpeg2000Error(f"its {len(stream)} bytes end inside the header") from error
    if len(kinds) != 1:
        raise Jpeg2000Error(f"its {components} components differ in depth or sampling")
    ((depth, *_),) = kinds
    return Jpeg2000Header(right - left, bottom - top, components, (depth & 0x7F) + 1)


def check_claim(stream: bytes, max_bytes: int) -> None:
    """A decoder makes room for what the header says, whatever the file says.

    Raises:
        Jpeg2000Error: no codestream, or more than `max_bytes` of pixels.
    """
    start = stream.find(_START + _SIZE)
    if start < 0 or len(stream) < start + 42:
        raise Jpeg2000Error("has no size segment")
    right, bottom, left, top = struct.unpack_from(">4I", stream, start + 8)
    (components,) = struct.unpack_from(">H", stream, start + 40)
    if (right - left) * (bottom - top) * components > max_bytes:
        raise Jpeg2000Error(f"says {right - left}×{bottom - top} px with {components} components")


def check_end(stream: bytes) -> None:
    """Decoders do without the end marker, so only zeros in its place count as damage.

    Raises:
        Jpeg2000Error: the end was overwritten with zeros.
    """
    if stream.endswith(bytes(8)) and stream.rfind(_END) < 0:
        raise Jpeg2000Error(f"its {len(stream)} bytes end in zeros, without an end marker (ffd9)")
