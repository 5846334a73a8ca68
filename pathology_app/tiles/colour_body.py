"""A colour table as sent to the browser.

    uint32        number of nodes along each channel, n
    uint8 × n     values of a channel at the nodes, rising, the first 0 and the last 255
    uint8 × 3n³   sRGB at each node, blue changing fastest

Little-endian. frontend/src/image/colour.ts reads it.
"""

from __future__ import annotations

import struct

from pipeline.store.view.colour import ColourTable

COLOUR_MEDIA_TYPE = "application/vnd.gemslide.colour"
_COUNT = struct.Struct("<I")


def colour_body(table: ColourTable) -> bytes:
    """The bytes of a colour table."""
    return _COUNT.pack(len(table.nodes)) + table.nodes.tobytes() + table.colours_rgbc.tobytes()
