"""Tiles that Aperio scanners are known to leave empty or scrambled at the right and bottom of their reduced levels.

They are found by looking across the seam to their neighbour, confirmed against the parent level, and built from it.
"""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np

from pipeline.box import Box
from pipeline.codecs.images import encode_jpeg, encode_jpeg_2000
from pipeline.codecs.types import DecodeError, Pixels, Stream
from pipeline.errors import CorruptTileError
from pipeline.ingest.repaired import Position, RepairedLevel
from pipeline.slides.slide import EncodedLevel, NotCopied, Slide, one_stream
from pipeline.store.chunks import decode_chunk
from pipeline.store.layout import FILL_VALUE
from pipeline.store.threads import CORES, parallel_for

_SUSPICIOUS_SEAM = 12.0
"""Mean difference of pixels across a seam, over twice the one inside the neighbour, from which the parent is asked."""
_SCRAMBLED = 24.0
"""Mean difference from the parent's mean that no filter or JPEG quality explains."""
_QUALITY = 95


class EdgeCheck:
    """Looks at one reduced level of an Aperio slide; the slide shows the level before as it was repaired."""

    def __init__(self, slide: Slide, level: int, encoded: EncodedLevel) -> None:
        self._slide, self._level, self._encoded = slide, level, encoded
        self._size, self._parent = slide.info.levels[level], slide.info.levels[level - 1]
        self._parent_is_empty = _EmptyParts(slide, level - 1)

    def repair(self) -> RepairedLevel | None:
        """The level with its bad tiles built again; None when there are none."""
        bad: dict[Position, Stream] = {}

        def look(row: int, column: int) -> None:
            expected = self._repaired_if_bad(row, column)
            if expected is not None:
                bad[row, column] = (self._encode(expected),)

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
        if tile is None and self._parent_is_empty(self._box_in_parent(row, column)):
            return None
        expected = self._from_parent(row, column)
        if tile is None:
            return None if (expected == FILL_VALUE).all() else expected
        difference = np.abs(tile.astype(np.int16) - expected).mean()
        return expected if difference > _SCRAMBLED else None

    def _decoded(self, row: int, column: int) -> Pixels | None:
        """The part of a tile inside the level; None when it is left out or cannot be decoded."""
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

    def _box_in_parent(self, row: int, column: int) -> Box:
        """A tile in the parent's pixels."""
        t, ratio = self._encoded.tile_px, self._size.downsample / self._parent.downsample
        left, top = round(column * t * ratio), round(row * t * ratio)
        right = min(round((column + 1) * t * ratio), self._parent.width_px)
        bottom = min(round((row + 1) * t * ratio), self._parent.height_px)
        return Box(left, top, max(1, right - left), max(1, bottom - top))

    def _from_parent(self, row: int, column: int) -> Pixels:
        t = self._encoded.tile_px
        width_px = min(t, self._size.width_px - column * t)
        height_px = min(t, self._size.height_px - row * t)
        region = self._slide.read_region(self._level - 1, self._box_in_parent(row, column))
        return np.asarray(cv2.resize(region, (width_px, height_px), interpolation=cv2.INTER_AREA), np.uint8)

    def _encode(self, pixels: Pixels) -> bytes:
        t = self._encoded.tile_px
        full = np.pad(pixels, ((0, t - pixels.shape[0]), (0, t - pixels.shape[1]), (0, 0)), mode="edge")
        return (
            encode_jpeg(full, quality=_QUALITY) if self._encoded.codec == "imagecodecs_jpeg" else encode_jpeg_2000(full)
        )


class _EmptyParts:
    """Whether a box of a level lies wholly in tiles that the scanner left out."""

    def __init__(self, slide: Slide, level: int) -> None:
        encoded = slide.encoded_level(level)
        self._tile_px = 0 if isinstance(encoded, NotCopied) else encoded.tile_px
        self._is_there = None if isinstance(encoded, NotCopied) else encoded.byte_counts() > 0

    def __call__(self, box: Box) -> bool:
        if self._is_there is None:
            return False
        rows, columns = box.cells(self._tile_px)
        return not self._is_there[rows.start : rows.stop, columns.start : columns.stop].any()
