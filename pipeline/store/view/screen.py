"""The pyramid that a viewer sees: tiles of about 512 px, and a level at every halving.

A store keeps the scanner's chunks, often of 240 or 256 px, and the scanner's levels, often only every second halving.
Requested chunk by chunk, a field of view at half of a level's resolution takes seventy responses, with four times the
pixels it shows. So neighbouring chunks are sent together, their streams untouched, and drawn at half size by the
browser: the streams take about as many bytes as one encoded again, and nothing is decoded here. Whatever is smaller
still, or does not divide, is averaged here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.box import Box
from pipeline.codecs.images import decode_jpeg_small, encode_jpeg
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError
from pipeline.store.format.layout import FILL_VALUE
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import LevelArray, StoreReader
from pipeline.store.reading.resample import area_mean

TILE_PX = 512
"""Side of a tile, approximated by whole chunks."""

_MAX_SMALL = 8
"""Largest reduction at which libjpeg decodes."""
_MAX_SHRINK_OF_STREAMS = 2
"""Largest reduction at which a browser draws streams: each halving needs four times as many."""
_DAMAGED = b""
"""In place of an unreadable stream; no readable one is empty."""
_NEEDED_GAP = 1.5
"""Factor by which the store's next level must be coarser for a level in between to be worth making."""


@dataclass(frozen=True)
class ScreenLevel:
    """One level of the pyramid that a viewer sees, finest first."""

    source: LevelArray
    """The store's level that its pixels come from."""
    shrink: int
    """Pixels of that level along each pixel of this one; 1: the store's own pixels."""
    chunks: int
    """Chunks of that level along each side of a tile."""

    @property
    def tile_px(self) -> int:
        return self.chunks * self.source.chunk_px // self.shrink

    @property
    def width_px(self) -> int:
        return -(-self.source.width_px // self.shrink)

    @property
    def height_px(self) -> int:
        return -(-self.source.height_px // self.shrink)

    @property
    def downsample(self) -> float:
        return self.source.downsample * self.shrink

    def source_box(self, row: int, column: int) -> Box:
        """A tile in pixels of the store's level.

        Raises:
            IndexError: outside the grid.
        """
        side_px = self.chunks * self.source.chunk_px
        tile = Box(column * side_px, row * side_px, side_px, side_px)
        inside = tile.within(self.source.width_px, self.source.height_px)
        if row < 0 or column < 0 or inside.is_empty:
            grid = -(-self.source.height_px // side_px), -(-self.source.width_px // side_px)
            raise IndexError(f"tile row {row}, column {column}: the level has {grid[0]} × {grid[1]}")
        return inside


def screen_levels(reader: StoreReader) -> tuple[ScreenLevel, ...]:
    """The store's levels, and the missing ones between them, finest first."""
    levels = []
    for level, coarser in zip(reader.levels, (*reader.levels[1:], None), strict=True):
        shrink = 1
        while shrink == 1 or (coarser is not None and level.downsample * shrink * _NEEDED_GAP < coarser.downsample):
            levels.append(ScreenLevel(level, shrink, _chunks_along(level.chunk_px, shrink)))
            shrink *= 2
    return tuple(levels)


def _chunks_along(chunk_px: int, shrink: int) -> int:
    chunks = max(1, round(TILE_PX * shrink / chunk_px))
    while chunks * chunk_px % shrink:
        chunks += 1
    return chunks


@dataclass(frozen=True)
class Part:
    """A piece of a tile: a JPEG, or a hole where the store is damaged."""

    box: Box
    """Position in pixels of the tile; a JPEG may reach beyond it, with padding."""
    jpeg: bytes | None
    shrink: int = 1
    """Pixels of the JPEG along each pixel of the tile: their mean is what the tile shows."""


def tile_parts(reader: StoreReader, level: ScreenLevel, row: int, column: int) -> list[Part]:
    """Parts to draw for a tile, on white, in colours as scanned: the browser converts them with the slide's profile.

    Streams are the scanner's own where a browser can decode them.

    Raises:
        IndexError: no such tile.
        UnreadableError: the store was replaced or cannot be opened.
    """
    box = level.source_box(row, column)
    shrink = level.shrink
    # At the slide's edge, a pixel not made of four of the slide's would include some of a chunk's padding.
    divides = all(px % shrink == 0 for px in (level.source.chunk_px, box.width_px, box.height_px))
    if level.source.codec == "imagecodecs_jpeg" and shrink <= _MAX_SHRINK_OF_STREAMS and divides:
        parts = _streams(level.source.array, box)
        return [Part(_shrunk(part.box, shrink), part.jpeg, shrink) for part in parts]
    return _composed(level, box)


def _streams(array: ArrayReader, box: Box) -> list[Part]:
    """The chunks of a box as stored, without all-white ones."""
    rows, columns = box.cells(array.spec.chunk_px)
    streams = _read(array, rows, columns)
    positions = [position for _, _, position in _cells(box, array.spec.chunk_px)]
    return [
        Part(position, None if stream is _DAMAGED else stream)
        for position, stream in zip(positions, streams, strict=True)
        if stream is not None
    ]


def _read(array: ArrayReader, rows: range, columns: range) -> list[bytes | None]:
    """Streams of a block of chunks, row by row, neighbours in one read if all can be read; None: white."""
    try:
        fetched = array.fetched(rows, columns)
        return [stream for some_rows, chunks in fetched for row in some_rows for stream in chunks(row, columns)]
    except CorruptTileError:
        return [_alone(array, row, column) for row in rows for column in columns]


def _alone(array: ArrayReader, row: int, column: int) -> bytes | None:
    try:
        return array.chunk(row, column)
    except CorruptTileError:
        return _DAMAGED


def tile_pixels(level: ScreenLevel, row: int, column: int) -> tuple[Pixels, list[Box]]:
    """A tile's pixels as scanned, cut at the slide's edge, and the boxes in it that cannot be read: white there.

    Raises:
        IndexError: no such tile.
        UnreadableError: the store was replaced or cannot be opened.
    """
    pixels, holes = _pixels(level, level.source_box(row, column))
    return pixels, [_shrunk(hole, level.shrink) for hole in holes]


def _composed(level: ScreenLevel, box: Box) -> list[Part]:
    pixels, holes = _pixels(level, box)
    whole = Part(Box(0, 0, pixels.shape[1], pixels.shape[0]), encode_jpeg(pixels))
    return [whole, *(Part(_shrunk(hole, level.shrink), None) for hole in holes)]


def _pixels(level: ScreenLevel, box: Box) -> tuple[Pixels, list[Box]]:
    """Pixels of a box of the store's level, shrunk, and the positions in the box that cannot be read."""
    array, shrink, chunk_px = level.source.array, level.shrink, level.source.chunk_px
    # Beyond the slide's edge a chunk is padded, often in black: there, pixels are cut before they are averaged.
    is_whole = box.right_px % chunk_px == box.bottom_px % chunk_px == chunk_px % shrink == 0
    if level.source.codec == "imagecodecs_jpeg" and 1 < shrink <= _MAX_SMALL and is_whole:
        return _decoded_small(array, box, shrink)
    return _averaged(array, box, shrink)


def _decoded_small(array: ArrayReader, box: Box, shrink: int) -> tuple[Pixels, list[Box]]:
    """Chunks of a box decoded at their smaller size, and the positions of those that cannot be decoded."""
    pixels = np.full((box.height_px // shrink, box.width_px // shrink, 3), FILL_VALUE, np.uint8)
    holes = []
    for part in _streams(array, box):
        try:
            small = None if part.jpeg is None else decode_jpeg_small(part.jpeg, array.spec.chunk_px, shrink)
        except DecodeError:
            small = None
        if small is None:
            holes.append(part.box)
            continue
        at = _shrunk(part.box, shrink)
        pixels[at.y_px : at.bottom_px, at.x_px : at.right_px] = small
    return pixels, holes


def _averaged(array: ArrayReader, box: Box, shrink: int) -> tuple[Pixels, list[Box]]:
    """Pixels of a box averaged over squares, the last ones over what there is, and the unreadable positions."""
    holes: list[Box] = []
    try:
        pixels = array.read_region(box)
    except CorruptTileError:
        pixels, holes = _around_damage(array, box)
    missing = (-box.height_px % shrink, -box.width_px % shrink)
    if any(missing):
        pixels = np.pad(pixels, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="edge")
    return area_mean(pixels, 0, 0, shrink, (pixels.shape[1] // shrink, pixels.shape[0] // shrink)), holes


def _around_damage(array: ArrayReader, box: Box) -> tuple[Pixels, list[Box]]:
    """Readable pixels of a box, and the positions in it of the unreadable chunks."""
    pixels = np.full((box.height_px, box.width_px, 3), FILL_VALUE, np.uint8)
    holes = []
    for row, column, position in _cells(box, array.spec.chunk_px):
        try:
            chunk = array.decoded_chunk(row, column)
        except CorruptTileError:
            holes.append(position)
            continue
        if chunk is not None:
            pixels[position.y_px : position.bottom_px, position.x_px : position.right_px] = chunk[
                : position.height_px, : position.width_px
            ]
    return pixels, holes


def _cells(box: Box, chunk_px: int) -> list[tuple[int, int, Box]]:
    """Row, column and position in the box of each chunk; the box begins at a chunk's corner."""
    rows, columns = box.cells(chunk_px)
    cells = []
    for row in rows:
        for column in columns:
            x_px, y_px = column * chunk_px - box.x_px, row * chunk_px - box.y_px
            position = Box(x_px, y_px, min(chunk_px, box.width_px - x_px), min(chunk_px, box.height_px - y_px))
            cells.append((row, column, position))
    return cells


def _shrunk(box: Box, shrink: int) -> Box:
    """The box in smaller pixels: all that it touches."""
    x_px, y_px = box.x_px // shrink, box.y_px // shrink
    return Box(x_px, y_px, -(-box.right_px // shrink) - x_px, -(-box.bottom_px // shrink) - y_px)
