"""Tiles that Aperio scanners are known to leave empty or scrambled at the right and bottom of their reduced levels.

They are found by comparison across the seam to their neighbour, confirmed by the parent level, and rebuilt from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from pipeline.box import Box
from pipeline.codecs.types import DecodeError, Pixels, Stream
from pipeline.errors import CorruptTileError
from pipeline.ingest.damage.reduced import box_in_parent, encoded_tile, from_parent, tile_box
from pipeline.ingest.damage.repaired import RepairedLevel
from pipeline.slides.common.slide import EncodedLevel, NotCopied, Slide, one_stream
from pipeline.slides.common.tile_places import Position
from pipeline.store.format.chunks import decode_chunk
from pipeline.store.format.layout import FILL_VALUE
from pipeline.store.reading.threads import CORES, parallel_for

_SUSPICIOUS_SEAM = 12.0
"""Mean difference of pixels across a seam, over twice the one inside the neighbour, from which the parent is read."""
_SCRAMBLED = 24.0
"""Mean difference from the parent's mean that no filter or JPEG quality explains."""


class EdgeCheck:
    """Checks one reduced level of an Aperio slide; the slide shows the level before as repaired.

    Args:
        is_masked: whether a box of the level before has lost pixels; tiles over them cannot be compared with it.
    """

    def __init__(
        self, slide: Slide, level: int, encoded: EncodedLevel, is_masked: Callable[[Box], bool] = lambda _: False
    ) -> None:
        self._slide, self._level, self._encoded, self._is_masked = slide, level, encoded, is_masked
        self._size = slide.info.levels[level]
        self._parent_is_empty = _EmptyParts(slide, level - 1)

    def repair(self) -> RepairedLevel | None:
        """The level with its bad tiles rebuilt; None if there are none."""
        bad: dict[Position, Stream] = {}

        def look(row: int, column: int) -> None:
            expected = self._repaired_if_bad(row, column)
            if expected is not None:
                bad[row, column] = (encoded_tile(expected, self._encoded.codec, self._encoded.tile_px),)

        parallel_for(look, self._candidates(), CORES)
        return RepairedLevel(self._encoded, dict(sorted(bad.items()))) if bad else None

    def _candidates(self) -> Iterable[Position]:
        """Edge tiles, and tiles left out although the parent has pixels there."""
        rows, columns = self._encoded.rows, self._encoded.columns
        edge = {(row, columns - 1) for row in range(rows)} | {(rows - 1, column) for column in range(columns)}
        left_out = {(int(r), int(c)) for r, c in np.argwhere(self._encoded.byte_counts() == 0)}
        return sorted(edge | {at for at in left_out if not self._parent_is_empty(self._box_in_parent(*at))})

    def _repaired_if_bad(self, row: int, column: int) -> Pixels | None:
        tile = self._decoded(row, column)
        if tile is not None and not self._seam_is_suspicious(row, column, tile):
            return None
        in_parent = self._box_in_parent(row, column)
        if self._is_masked(in_parent) or (tile is None and self._parent_is_empty(in_parent)):
            return None
        expected = from_parent(self._slide, self._level, self._box(row, column))
        if tile is None:
            return None if (expected == FILL_VALUE).all() else expected
        difference = np.abs(tile.astype(np.int16) - expected).mean()
        return expected if difference > _SCRAMBLED else None

    def _decoded(self, row: int, column: int) -> Pixels | None:
        """The part of a tile inside the level; None if it is left out or cannot be decoded."""
        t = self._encoded.tile_px
        try:
            stream = one_stream(self._encoded, row, column)
            tile = None if stream is None else decode_chunk(self._encoded.codec, stream, t)
        except (CorruptTileError, DecodeError):
            return None
        return None if tile is None else tile[: self._size.height_px - row * t, : self._size.width_px - column * t]

    def _seam_is_suspicious(self, row: int, column: int, tile: Pixels) -> bool:
        is_right = column == self._encoded.columns - 1 and column > 0
        neighbour = self._decoded(row, column - 1) if is_right else self._decoded(row - 1, column) if row else None
        if neighbour is None:
            return True
        if not is_right:
            tile, neighbour = tile.swapaxes(0, 1), neighbour.swapaxes(0, 1)
        if neighbour.shape[0] != tile.shape[0] or neighbour.shape[1] < 2:
            return True
        last, before = neighbour[:, -1].astype(int), neighbour[:, -2].astype(int)
        seam, inside = np.abs(tile[:, 0] - last).mean(), np.abs(last - before).mean()
        return bool(seam > 2 * inside + _SUSPICIOUS_SEAM)

    def _box(self, row: int, column: int) -> Box:
        return tile_box(self._slide.info, self._level, self._encoded.tile_px, row, column)

    def _box_in_parent(self, row: int, column: int) -> Box:
        return box_in_parent(self._slide.info, self._level, self._box(row, column))


class _EmptyParts:
    """Whether a box of a level is entirely in tiles that the scanner left out."""

    def __init__(self, slide: Slide, level: int) -> None:
        encoded = slide.encoded_level(level)
        self._tile_px = 0 if isinstance(encoded, NotCopied) else encoded.tile_px
        self._is_there = None if isinstance(encoded, NotCopied) else encoded.byte_counts() > 0

    def __call__(self, box: Box) -> bool:
        if self._is_there is None:
            return False
        rows, columns = box.cells(self._tile_px)
        return not self._is_there[rows.start : rows.stop, columns.start : columns.stop].any()
