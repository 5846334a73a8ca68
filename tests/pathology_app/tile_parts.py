"""Parser for a tile's body."""

from __future__ import annotations

import struct

_COUNT, _PART = struct.Struct("<I"), struct.Struct("<4HII")


def parts_of(body: bytes) -> list[tuple[tuple[int, int, int, int], bytes]]:
    """Position and stream of each part."""
    (count,) = _COUNT.unpack_from(body)
    at, parts = _COUNT.size + count * _PART.size, []
    for index in range(count):
        *box, _, size = _PART.unpack_from(body, _COUNT.size + index * _PART.size)
        parts.append(((box[0], box[1], box[2], box[3]), body[at : at + size]))
        at += size
    assert at == len(body)
    return parts
