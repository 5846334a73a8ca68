"""Where a level's tiles are in the slide's files, for a store that points at them instead of copying them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.tile_streams import TileRule

Position = tuple[int, int]
"""(row, column) of a tile."""


@dataclass(frozen=True)
class TilePlaces:
    """Byte ranges of the tiles of one level. Arrays have the shape (rows, columns)."""

    rule: TileRule
    files: NDArray[np.uint16]
    """Index of each tile's file among `Slide.files`."""
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    """Bytes of each tile; 0 where there is none."""
    in_items: bool = False
    """Whether a range is a frame's items with their headers (`codecs/dicom_items.py`)."""
    replaced: frozenset[Position] = frozenset()
    """Tiles whose streams are not the source's."""

    def without(self, replaced: Collection[Position]) -> TilePlaces:
        """The same level with some tiles replaced, or left out."""
        counts = self.counts.copy()
        for position in replaced:
            counts[position] = 0
        return replace(self, counts=counts, replaced=self.replaced | frozenset(replaced))
