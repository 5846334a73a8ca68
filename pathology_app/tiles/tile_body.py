"""A tile as sent to the browser: a table of its parts, then their JPEG streams, one after the other.

    uint32        number of parts
    per part      uint16 × 4: x, y, width, height in pixels of the tile; uint32: pixels of its stream per pixel of the
                  tile, along a side; uint32: bytes of its stream, 0 for a hole

All little-endian. This sends neighbouring chunks in one answer with the scanner's own streams; a hole marks damage.
frontend/src/tiles/body.ts reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pipeline.store.view.screen import Part

MEDIA_TYPE = "application/vnd.gemslide.tile"
_COUNT, _PART = struct.Struct("<I"), struct.Struct("<4HII")


def tile_body(parts: Sequence[Part]) -> bytes:
    """The bytes of a tile."""
    table = b"".join(_PART.pack(*part.box, part.shrink, len(part.jpeg or b"")) for part in parts)
    return b"".join([_COUNT.pack(len(parts)), table, *(part.jpeg for part in parts if part.jpeg)])
