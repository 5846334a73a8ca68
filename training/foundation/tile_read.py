"""The level of a slide's pyramid that tiles are read from."""

from __future__ import annotations

from typing import Literal

TileRead = Literal["level", "finest"]
"""`level`: the stored level nearest to the tiles' µm/px, of those that are fine enough; `finest`: always level 0, so
that a tile's pixels do not depend on which levels a slide happens to store."""

TILE_READS: tuple[TileRead, ...] = ("level", "finest")
UNSTATED: TileRead = "level"
"""Value for tile tables and model packages that predate this setting."""


def described_read(read: TileRead | None) -> str:
    """Describe the level in a clause for people."""
    if read is None:
        return "read from an unknown level"
    return {"level": "read from the nearest stored level", "finest": "read from the finest level"}[read]
