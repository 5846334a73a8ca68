"""Tiles that a file does not hold: left out by the scanner, or lost by whatever wrote or copied the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipeline.slides.common.slide import Slide

WHITE = 255


@dataclass(frozen=True)
class AbsentTiles:
    """Tiles of one level without bytes of their own."""

    tile_wh_px: tuple[int, int]
    is_absent: NDArray[np.bool_]
    """(rows, columns) of tiles."""
    is_by_format: NDArray[np.bool_]
    """Of the same shape: absent tiles that the format defines as background."""
    blanks: frozenset[int] = frozenset()
    """Values that every pixel of a tile has if nothing was ever written there, where no table tells: 0 if tiles are
    stored uncompressed, the fill value if several are stored in one object."""


@runtime_checkable
class KnowsAbsentTiles(Protocol):
    """A slide whose reader knows which tiles its file holds. Optional: not every format has such a table."""

    def absent_tiles(self, level: int) -> AbsentTiles:
        """Tiles of a level that are not in the file."""


def absent_tiles(slide: Slide, level: int) -> AbsentTiles | None:
    """Tiles of a level that are not in the file; None if its reader does not know."""
    return slide.absent_tiles(level) if isinstance(slide, KnowsAbsentTiles) else None
