"""A focal plane of an NDPI stack, from its own tiles: OpenSlide shows only the one at height 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.box import Box, check_region
from pipeline.codecs.images import decode_jpeg
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError
from pipeline.slides.common.slide import EncodedLevel, NotCopied, SlideInfo, one_stream, paste


class NdpiPlane:
    """A `Slide`. Its file belongs to the stack, and is open as long as that is.

    Args:
        info: of the stack.
        levels: of this plane, as `info.levels`.
    """

    openslide_file: Path | None = None

    def __init__(self, info: SlideInfo, files: tuple[Path, ...], levels: tuple[EncodedLevel, ...]) -> None:
        self.info, self.files, self._levels = info, files, levels

    def read_region(self, level: int, box: Box) -> Pixels:
        check_region(level, len(self._levels), box, self.files[0].name)
        region = np.full((box.height_px, box.width_px, 3), 255, np.uint8)
        size, encoded = self.info.levels[level], self._levels[level]
        rows, columns = box.within(size.width_px, size.height_px).cells(encoded.tile_px)
        for row in rows:
            for column in columns:
                x_px, y_px = column * encoded.tile_px, row * encoded.tile_px
                tile = self._tile(level, row, column)[: size.height_px - y_px, : size.width_px - x_px]
                paste(region, tile, x_px - box.x_px, y_px - box.y_px)
        return region

    def _tile(self, level: int, row: int, column: int) -> Pixels:
        stream = one_stream(self._levels[level], row, column)
        assert stream is not None  # an NDPI file has no sparse tiles
        try:
            return decode_jpeg(stream)
        except DecodeError as error:
            raise CorruptTileError(
                f"{self.files[0].name}: the tile in row {row}, column {column} of level {level} cannot be decoded "
                f"({error}). The file is damaged; copy or scan it again."
            ) from error

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        check_region(level, len(self._levels), Box(0, 0, 0, 0), self.files[0].name)
        return self._levels[level]

    def associated_image(self, name: str) -> Pixels:
        raise KeyError(name)  # they are the stack's

    def __enter__(self) -> NdpiPlane:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the file open."""
