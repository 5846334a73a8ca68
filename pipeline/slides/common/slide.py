"""Interface of every reader: levels, pixels, and the scanner's own tiles where they can be copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels, Stream, StreamCodec
from pipeline.slides.common.pyramid import LevelSize
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.common.tile_places import TilePlaces


@dataclass(frozen=True)
class SlideInfo:
    """Facts that the file states about itself. Nothing here names a patient, a file or a user."""

    format: str
    levels: tuple[LevelSize, ...]
    mpp_xy: tuple[float, float] | None
    """Microns per level-0 pixel; None if absent or absurd."""
    mpp_looked_in: str
    """Places searched for mpp, with what they held, for the error message."""
    mpp_contradiction: str = ""
    """Clause on another scale that the file states, too; "" without."""
    objective_power: float | None = None
    scanner_model: str | None = None
    icc: bytes | None = None
    associated: tuple[str, ...] = ()
    series: str | None = None
    """Image of the file that this is (`series.recorded_series`); None if it is the only slide and comes first."""
    bounds_px0: Box | None = None
    """Scanned area, where the level-0 frame is larger; white outside."""
    nm_centre_xy: tuple[float, float] | None = None
    """Position of the middle of level 0 on a Hamamatsu slide, in nanometres from the centre of the glass."""
    label_in_image: str | None = None
    """The file's statement that the slide's label, or other text that can name a person, is among its pixels."""
    planes_um: tuple[float, ...] = ()
    """Heights of a stack's focal planes, lowest first (`Stack`); () for a single plane."""
    warnings: SlideWarnings = field(default_factory=SlideWarnings, compare=False)
    """Contradictions in the file, as far as it was read; complete once all pixels have been."""


class CutTiles(Protocol):
    """Tiles that were cut out of a larger JPEG without decoding it, and what they can be compared with.

    Where chroma is subsampled, a decoder interpolates it from beyond a cut in the larger JPEG, but not in a tile.
    """

    @property
    def interval_wh_px(self) -> tuple[int, int]:
        """Size of the restart intervals that the tiles are made of, which OpenSlide decodes one by one."""

    @property
    def reach_xy_px(self) -> tuple[int, int]:
        """Pixels on both sides of a cut that may differ for that reason, along x and y."""

    def coded_data(self, row: int, column: int) -> list[bytes] | None:
        """The source's coded data of a tile's intervals inside the image, in order, without markers.

        None where tiles begin inside intervals: bits are then moved, and bytes cannot be compared.
        """

    def with_neighbours(self, row: int, column: int) -> tuple[bytes, tuple[int, int]]:
        """A JPEG of a tile and of the intervals around it; and x, y (px) of the tile in it."""


class EncodedLevel(Protocol):
    """A level whose tiles are complete JPEG or JPEG 2000 streams that can be stored as they are."""

    codec: StreamCodec
    tile_px: int
    columns: int
    rows: int

    @property
    def cut(self) -> CutTiles | None:
        """What tiles can be compared with that were cut out of a larger JPEG; None: they are the scanner's own."""

    def byte_counts(self) -> NDArray[np.int64]:
        """Bytes of every tile in the source, int64 of shape (rows, columns); 0 where the scanner skipped a tile."""

    def streams(self, row: int, columns: range) -> list[Stream]:
        """Self-contained streams of neighbouring tiles of one row. Raises CorruptTileError."""

    def places(self) -> TilePlaces | NotCopied:
        """Where its tiles are in the slide's files, or why they are not there as they are.

        Raises:
            CorruptTileError: a tile is said to be outside its file.
        """


@dataclass(frozen=True)
class NotCopied:
    """Reason to decode a level's tiles and store them again instead of copying them, or pointing at them."""

    reason: str


def one_stream(encoded: EncodedLevel, row: int, column: int) -> bytes | None:
    """A single tile's self-contained stream; None for a sparse tile. Raises CorruptTileError."""
    (stream,) = encoded.streams(row, range(column, column + 1))
    return b"".join(stream) if stream else None


class Slide(Protocol):
    """One open slide. Use as a context manager; safe to read from several threads."""

    info: SlideInfo
    files: tuple[Path, ...]
    """Every file whose bytes make up the slide."""

    @property
    def openslide_file(self) -> Path | None:
        """The file by which OpenSlide reads the same slide in the right colours; None if it cannot."""

    def read_region(self, level: int, box: Box) -> Pixels:
        """A box of a level's own pixels, uint8 (box.height_px, box.width_px, 3); white outside.

        Raises:
            CorruptTileError: a tile cannot be decoded.
            UnreadableError: no such level, or a size below zero (`check_region`).
        """

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        """The level's own tiles, or why they cannot be copied."""

    def associated_image(self, name: str) -> Pixels:
        """A label, macro or thumbnail image by its name in `info.associated`."""

    def __enter__(self) -> Slide: ...

    def __exit__(self, *exc: object) -> None: ...


LEVEL_OF_SOME_PLANES = "not all focal planes of the file have this level alike, so that it is built from the finer one"
"""Warning about a level of a stack."""


@runtime_checkable
class Stack(Protocol):
    """A slide of several focal planes; as a `Slide`, it is the default one."""

    def at_plane(self, plane: int) -> Slide:
        """The slide at a focal plane, by its number in `info.planes_um`; usable while the stack is open."""


def planes_of(slide: Slide) -> list[Slide]:
    """The slide at each of its focal planes, lowest first: itself, if it has a single one."""
    if not slide.info.planes_um:
        return [slide]
    assert isinstance(slide, Stack)  # whoever states heights is
    return [slide.at_plane(plane) for plane in range(len(slide.info.planes_um))]


def paste(region: Pixels, tile: Pixels, x_px: int, y_px: int) -> None:
    """Copy the part of `tile` that is inside `region` when its corner is at (x_px, y_px)."""
    height, width = region.shape[:2]
    x0, y0 = max(0, x_px), max(0, y_px)
    x1, y1 = min(width, x_px + tile.shape[1]), min(height, y_px + tile.shape[0])
    if x0 < x1 and y0 < y1:
        region[y0:y1, x0:x1] = tile[y0 - y_px : y1 - y_px, x0 - x_px : x1 - x_px]
