"""A slide without its damaged tiles: white at level 0, made from the level before on the others.

White and masked is the truth at level 0: the reduced copies are blurred, and must not be used to measure nuclei.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels, Stream
from pipeline.ingest.damage.found import Damage
from pipeline.ingest.damage.reduced import encoded_tile, from_parent, tile_box
from pipeline.ingest.damage.repaired import region_with_others
from pipeline.slides.common.slide import EncodedLevel, NotCopied, Slide
from pipeline.slides.common.tile_places import Position, TilePlaces


class MaskedLevel:
    """An encoded level in which damaged tiles are left out, or made from the level before. Thread-safe.

    Args:
        instead_of: makes the stream that replaces a damaged tile; None: they are left out.
    """

    def __init__(
        self, encoded: EncodedLevel, damaged: frozenset[Position], instead_of: Callable[[Position], Stream] | None
    ) -> None:
        self._encoded, self._damaged, self._instead_of = encoded, damaged, instead_of
        self.codec, self.tile_px = encoded.codec, encoded.tile_px
        self.columns, self.rows, self.cut = encoded.columns, encoded.rows, encoded.cut

    def byte_counts(self) -> NDArray[np.int64]:
        """Bytes of the source's tiles, damaged or not; 0 for tiles left out."""
        counts = self._encoded.byte_counts().copy()
        for position in self._damaged:
            counts[position] = max(1, counts[position]) if self._instead_of else 0
        return counts

    def streams(self, row: int, columns: range) -> list[Stream]:
        streams: list[Stream] = []
        start = columns.start
        for column in columns:
            if (row, column) in self._damaged:
                streams += self._own(row, range(start, column))
                streams.append(self._instead_of((row, column)) if self._instead_of else ())
                start = column + 1
        return streams + self._own(row, range(start, columns.stop))

    def places(self) -> TilePlaces | NotCopied:
        places = self._encoded.places()
        return places if isinstance(places, NotCopied) else places.without(self._damaged)

    def _own(self, row: int, columns: range) -> list[Stream]:
        return self._encoded.streams(row, columns) if columns else []


class MaskedSlide:
    """A slide that never shows its damaged tiles."""

    def __init__(self, slide: Slide, damage: Damage) -> None:
        self._slide, self._damage = slide, damage
        self.info, self.files = slide.info, slide.files

    @property
    def openslide_file(self) -> Path | None:
        return self._slide.openslide_file

    def read_region(self, level: int, box: Box) -> Pixels:
        damage = self._damage[level]

        def pixels_of(position: Position) -> Pixels | None:
            return self._from_level_before(level, position) if level else None

        return region_with_others(self._slide, level, box, damage.tile_px, damage.tiles, pixels_of)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        encoded, damaged = self._slide.encoded_level(level), self._damage[level].tiles
        if isinstance(encoded, NotCopied) or not damaged:
            return encoded
        codec, tile_px = encoded.codec, encoded.tile_px

        def from_level_before(position: Position) -> Stream:
            return (encoded_tile(self._from_level_before(level, position), codec, tile_px),)

        return MaskedLevel(encoded, damaged, from_level_before if level else None)

    def _from_level_before(self, level: int, position: Position) -> Pixels:
        """Pixels shown for a damaged tile of a reduced level, cut to the level."""
        return from_parent(self, level, tile_box(self.info, level, self._damage[level].tile_px, *position))

    def associated_image(self, name: str) -> Pixels:
        return self._slide.associated_image(name)

    def __enter__(self) -> MaskedSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the slide open; its opener closes it."""
