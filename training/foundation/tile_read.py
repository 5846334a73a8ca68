"""The level of a slide's pyramid that tiles are read from."""

from __future__ import annotations

from typing import Literal

TileRead = Literal["level", "finest"]
"""`level`: the stored level nearest to the tiles' µm/px, of those that are fine enough; `finest`: always level 0, so
that a tile's pixels do not depend on which levels a slide happens to store."""

TILE_READS: tuple[TileRead, ...] = ("level", "finest")
UNSTATED: TileRead = "level"
"""Of tile tables and model packages from before there was a choice."""


def described_read(read: TileRead | None) -> str:
    """A clause for people."""
    if read is None:
        return "read from a level that is not known"
    return {"level": "read from the nearest stored level", "finest": "read from the finest level"}[read]
