"""Levels in which damaged tiles are replaced by others: as streams to copy, and as pixels to decode."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels, Stream
from pipeline.slides.slide import EncodedLevel, NotCopied, Slide
from pipeline.store.chunks import decode_chunk
from pipeline.store.layout import FILL_VALUE

Position = tuple[int, int]
"""(row, column) of a tile."""


class RepairedLevel:
    """An encoded level in which some tiles are built from the parent level."""

    def __init__(self, encoded: EncodedLevel, repaired: dict[Position, Stream]) -> None:
        self._encoded, self.repaired = encoded, repaired
        self.codec, self.tile_px = encoded.codec, encoded.tile_px
        self.columns, self.rows = encoded.columns, encoded.rows

    def byte_counts(self) -> NDArray[np.int64]:
        counts = self._encoded.byte_counts().copy()
        for position, stream in self.repaired.items():
            counts[position] = sum(map(len, stream))
        return counts

    def streams(self, row: int, columns: range) -> list[Stream]:
        if not any((row, column) in self.repaired for column in columns):
            return self._encoded.streams(row, columns)
        found: list[Stream] = []
        for column in columns:
            one = self.repaired.get((row, column))
            found += self._encoded.streams(row, range(column, column + 1)) if one is None else [one]
        return found

    def pixels(self, position: Position) -> Pixels:
        """A repaired tile, uint8 (tile_px, tile_px, 3)."""
        return decode_chunk(self.codec, b"".join(self.repaired[position]), self.tile_px)


class RepairedSlide:
    """A slide that shows repaired tiles in place of its own."""

    def __init__(self, slide: Slide, levels: dict[int, RepairedLevel]) -> None:
        self._slide, self.levels = slide, levels
        self.info, self.files = slide.info, slide.files

    @property
    def openslide_file(self) -> Path | None:
        return self._slide.openslide_file

    def read_region(self, level: int, box: Box) -> Pixels:
        repaired, size = self.levels.get(level), self.info.levels[level]
        inside = box.within(size.width_px, size.height_px)
        if repaired is None or inside.is_empty:
            return self._slide.read_region(level, box)
        t = repaired.tile_px
        tiles = list(itertools.product(*inside.cells(t)))
        if not any(tile in repaired.repaired for tile in tiles):
            return self._slide.read_region(level, box)
        region = np.full((box.height_px, box.width_px, 3), FILL_VALUE, np.uint8)
        for row, column in tiles:  # one by one: the file's own tile may not even decode
            left, top = max(inside.x_px, column * t), max(inside.y_px, row * t)
            right, bottom = min(inside.right_px, (column + 1) * t), min(inside.bottom_px, (row + 1) * t)
            if (row, column) in repaired.repaired:
                tile = repaired.pixels((row, column))
                part = tile[top - row * t : bottom - row * t, left - column * t : right - column * t]
            else:
                part = self._slide.read_region(level, Box(left, top, right - left, bottom - top))
            region[top - box.y_px : bottom - box.y_px, left - box.x_px : right - box.x_px] = part
        return region

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        return self.levels.get(level) or self._slide.encoded_level(level)

    def associated_image(self, name: str) -> Pixels:
        return self._slide.associated_image(name)

    def __enter__(self) -> RepairedSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        """Whoever opened the slide closes it."""
