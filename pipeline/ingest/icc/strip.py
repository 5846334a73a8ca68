"""The colour profile without its texts: what is needed to show colours, and nothing that could name a person.

A profile's free texts (description, copyright, maker, model, calibration target) and dates can hold serial numbers,
sites and operators. Only the tags that colours are computed from are kept, by an allow-list of tags and of their types
(ICC.1:2022, clauses 7 to 10), each cut to what its type needs, and the parts of the header that say how to use them;
the two texts that the format requires are placeholders.
"""

from __future__ import annotations

import struct

from pipeline.ingest.icc.types import exact

_TAGS = frozenset(
    {b"wtpt", b"bkpt", b"chad", b"chrm", b"lumi", b"gamt", b"cicp", b"rXYZ", b"gXYZ", b"bXYZ"}
    | {b"rTRC", b"gTRC", b"bTRC", b"kTRC"}
    | {kind + number for kind in (b"A2B", b"B2A") for number in (b"0", b"1", b"2")}
)
_CLASSES = (b"scnr", b"mntr", b"prtr", b"spac")
_CONNECTION_SPACES = (b"XYZ ", b"Lab ")
_D50 = struct.pack(">III", 0xF6D6, 0x10000, 0xD32D)
"""The illuminant of every profile's connection space."""
_HEADER_BYTES, _ENTRY_BYTES = 128, 12
_MAX_TAGS = 100


def strip_icc_text(profile: bytes) -> bytes | None:
    """A profile that gives the same colours, without texts, dates and names of devices.

    Returns:
        None if the profile is damaged: nothing in it can be trusted to be harmless.
    """
    tags = _tags(profile)
    header = None if tags is None else _header(profile)
    if tags is None or header is None:
        return None
    cut = {name: exact(data) for name, data in tags.items() if name in _TAGS}
    kept = {name: data for name, data in cut.items() if data is not None}
    if not kept:
        return None
    is_v2 = profile[8] < 4
    kept[b"desc"] = _description(b"slide scanner") if is_v2 else _unicode("slide scanner")
    kept[b"cprt"] = b"text\0\0\0\0none\0" if is_v2 else _unicode("none")
    return _assembled(header, kept)


def _header(profile: bytes) -> bytes | None:
    """Version, class, colour spaces and rendering intent; all else is blank. Its length is filled in later."""
    kind, colours, connection = (profile[at : at + 4] for at in (12, 16, 20))
    if kind not in _CLASSES or colours != b"RGB " or connection not in _CONNECTION_SPACES:
        return None
    header = bytearray(_HEADER_BYTES)
    header[8:10], header[12:24], header[36:40] = profile[8:10], kind + colours + connection, b"acsp"
    header[67], header[68:80] = profile[67] & 3, _D50
    return bytes(header)


def _tags(profile: bytes) -> dict[bytes, bytes] | None:
    if len(profile) < _HEADER_BYTES + 4 or profile[36:40] != b"acsp":
        return None
    (count,) = struct.unpack_from(">I", profile, _HEADER_BYTES)
    table_end = _HEADER_BYTES + 4 + _ENTRY_BYTES * count
    if count > _MAX_TAGS or table_end > len(profile):
        return None
    tags = {}
    for index in range(count):
        name, offset, size = struct.unpack_from(">4sII", profile, _HEADER_BYTES + 4 + _ENTRY_BYTES * index)
        if offset < table_end or offset + size > len(profile) or size < 8:
            return None
        tags[name] = profile[offset : offset + size]
    return tags


def _assembled(header: bytes, tags: dict[bytes, bytes]) -> bytes:
    """Header, table and data; equal data (the three curves, often) are stored once."""
    position = _HEADER_BYTES + 4 + _ENTRY_BYTES * len(tags)
    offsets: dict[bytes, int] = {}
    body, table = b"", struct.pack(">I", len(tags))
    for name, data in tags.items():
        if data not in offsets:
            offsets[data] = position + len(body)
            body += data + bytes(-len(data) % 4)
        table += struct.pack(">4sII", name, offsets[data], len(data))
    return struct.pack(">I", position + len(body)) + header[4:] + table + body


def _description(text: bytes) -> bytes:
    """textDescriptionType of version 2: ASCII, and empty Unicode and Macintosh parts."""
    return b"desc" + bytes(4) + struct.pack(">I", len(text) + 1) + text + b"\0" + bytes(4 + 4 + 2 + 1 + 67)


def _unicode(text: str) -> bytes:
    """multiLocalizedUnicodeType of version 4 with one record."""
    encoded = text.encode("utf-16-be")
    return b"mluc" + bytes(4) + struct.pack(">II4sII", 1, 12, b"enUS", len(encoded), 28) + encoded
