"""Levels in which damaged tiles are replaced by others: as streams to copy, and as pixels to decode."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels, Stream
from pipeline.slides.common.slide import EncodedLevel, NotCopied, Slide, paste
from pipeline.slides.common.tile_places import Position, TilePlaces
from pipeline.store.format.chunks import decode_chunk
from pipeline.store.format.layout import FILL_VALUE


class RepairedLevel:
    """An encoded level in which some tiles are built from the parent level."""

    def __init__(self, encoded: EncodedLevel, repaired: dict[Position, Stream]) -> None:
        self._encoded, self.repaired = encoded, repaired
        self.codec, self.tile_px = encoded.codec, encoded.tile_px
        self.columns, self.rows, self.cut = encoded.columns, encoded.rows, encoded.cut

    def byte_counts(self) -> NDArray[np.int64]:
        counts = self._encoded.byte_counts().copy()
        for position, stream in self.repaired.items():
            counts[position] = sum(map(len, stream))
        return counts

    def streams(self, row: int, columns: range) -> list[Stream]:
        if not any((row, column) in self.repaired for column in columns):
            return self._encoded.streams(row, columns)
        streams: list[Stream] = []
        for column in columns:
            one = self.repaired.get((row, column))
            streams += self._encoded.streams(row, range(column, column + 1)) if one is None else [one]
        return streams

    def places(self) -> TilePlaces | NotCopied:
        places = self._encoded.places()
        return places if isinstance(places, NotCopied) else places.without(self.repaired)

    def pixels(self, position: Position) -> Pixels:
        """A repaired tile, uint8 (tile_px, tile_px, 3)."""
        return decode_chunk(self.codec, b"".join(self.repaired[position]), self.tile_px)


def region_with_others(
    slide: Slide,
    level: int,
    box: Box,
    tile_px: int,
    others: Container[Position],
    pixels_of: Callable[[Position], Pixels | None],
) -> Pixels:
    """A box of a level in which some tiles are not the slide's own; these are never read.

    Args:
        others: those tiles.
        pixels_of: replacement of one, (tile_px, tile_px, 3) or the part of it inside the level; None: white.
    """
    size = slide.info.levels[level]
    inside = box.within(size.width_px, size.height_px)
    tiles = list(itertools.product(*inside.cells(tile_px)))
    if not any(tile in others for tile in tiles):
        return slide.read_region(level, box)
    region = np.full((box.height_px, box.width_px, 3), FILL_VALUE, np.uint8)
    for row, column in tiles:  # one by one: the file's own tile may not even decode
        if (row, column) in others:
            tile = pixels_of((row, column))
            if tile is not None:
                inner = tile[: size.height_px - row * tile_px, : size.width_px - column * tile_px]
                paste(region, inner, column * tile_px - box.x_px, row * tile_px - box.y_px)
            continue
        part = inside.overlap(Box(column * tile_px, row * tile_px, tile_px, tile_px))
        paste(region, slide.read_region(level, part), part.x_px - box.x_px, part.y_px - box.y_px)
    return region


class RepairedSlide:
    """A slide that shows repaired tiles in place of its own."""

    def __init__(self, slide: Slide, levels: dict[int, RepairedLevel]) -> None:
        self._slide, self.levels = slide, levels
        self.info, self.files = slide.info, slide.files

    @property
    def openslide_file(self) -> Path | None:
        return self._slide.openslide_file

    def read_region(self, level: int, box: Box) -> Pixels:
        repaired = self.levels.get(level)
        if repaired is None:
            return self._slide.read_region(level, box)
        return region_with_others(self._slide, level, box, repaired.tile_px, repaired.repaired, repaired.pixels)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        return self.levels.get(level) or self._slide.encoded_level(level)

    def associated_image(self, name: str) -> Pixels:
        return self._slide.associated_image(name)

    def __enter__(self) -> RepairedSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the slide open; its opener closes it."""
