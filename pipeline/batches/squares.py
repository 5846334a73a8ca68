"""Neighbouring tiles, filled one row of chunks at a time: each chunk is decoded once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.blocks import TileSource
from pipeline.codecs.types import Pixels
from pipeline.stain import Normaliser
from pipeline.store.format.layout import FILL_VALUE
from pipeline.store.layers.qc_scores import slide_normaliser
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import StoreReader, resize_square, square_side_px


@dataclass
class ReadSeconds:
    """Seconds that threads spent; two that read at the same time count twice."""

    read: float = 0.0
    decode: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, read_s: float, decode_s: float) -> None:
        with self._lock:
            self.read += read_s
            self.decode += decode_s


@dataclass(frozen=True)
class Part:
    """Part of a square's work."""

    first_tile: int
    """First of the tiles that it fills; a tile is finished when all parts that fill it are done."""
    work: Callable[[], None]


class SquareReader:
    """Reads tiles of one source. Thread-safe."""

    def __init__(self, source: TileSource, seconds: ReadSeconds) -> None:
        reader = StoreReader(source.store, source.plane_um)
        self._source, self._seconds = source, seconds
        self._array: ArrayReader = reader.levels[source.level].array
        self._downsample = reader.levels[source.level].downsample
        self._side_px = square_side_px(source.side_px0, self._downsample)
        self._normalise: Normaliser | None = slide_normaliser(reader, dict(source.stain)) if source.stain else None

    def parts(self, corners_xy0: NDArray[np.int64], tiles_nhwc: Sequence[Pixels], *, first_tile: int = 0) -> list[Part]:
        """Split the work of filling tiles, which equal those of `StoreReader.read_square` pixel for pixel.

        Args:
            corners_xy0: (tiles, 2), near each other, row by row from the top.
            tiles_nhwc: memory for each, uint8 (tile_px, tile_px, 3).
            first_tile: number of the first of these tiles in the parts.

        Returns:
            one part per row of chunks, from the top; they may be done in any order, and at the same time.
        """
        corners_xy = np.round(corners_xy0 / self._downsample).astype(np.int64)
        square = _Square(self._array, corners_xy, self._side_px, tiles_nhwc)
        return [
            Part(first_tile + min(tiles[0] for tiles in in_row.values()), partial(self._read_row, square, row))
            for row, in_row in sorted(square.touching.items())
        ]

    def _read_row(self, square: _Square, row: int) -> None:
        t, in_row = self._array.spec.chunk_px, square.touching[row]
        read_s, begun = 0.0, time.perf_counter()
        for columns in _runs(sorted(in_row)):
            start = time.perf_counter()
            streams = self._array.chunks(row, columns)
            read_s += time.perf_counter() - start
            for column, stream in zip(columns, streams, strict=True):
                chunk = FILL_VALUE if stream is None else self._array.decode(stream, row, column)
                inside_wh = self._inside(row, column)
                for index in in_row[column]:
                    left_px, top_px = square.corners[index]
                    _paste(square.level_tile(index), chunk, column * t - left_px, row * t - top_px, inside_wh)
        for index in square.finished_by(row):
            self._finish(square, index)
        self._seconds.add(read_s, time.perf_counter() - begun - read_s)

    def _finish(self, square: _Square, index: int) -> None:
        finished = square.tiles_nhwc[index]
        if square.is_resized:
            resize_square(square.take_level_tile(index), self._source.tile_px, out=finished)
        if self._normalise:
            finished[...] = self._normalise(finished)

    def _inside(self, row: int, column: int) -> tuple[int, int]:
        """Width and height of the part of a chunk that is on the slide."""
        spec, t = self._array.spec, self._array.spec.chunk_px
        return min(t, spec.width_px - column * t), min(t, spec.height_px - row * t)


class _Square:
    """Tiles being filled, and the chunks that touch them."""

    def __init__(
        self, array: ArrayReader, corners_xy: NDArray[np.int64], side_px: int, tiles_nhwc: Sequence[Pixels]
    ) -> None:
        self.tiles_nhwc = tiles_nhwc
        self.is_resized = side_px != len(tiles_nhwc[0])
        self.corners: list[tuple[int, int]] = corners_xy.tolist()
        """Plain numbers, in level pixels: numpy is slow to return single ones."""
        self.touching: dict[int, dict[int, list[int]]] = {}
        """Tiles by row and column of chunks."""
        self._level_tiles: dict[int, Pixels] = {}
        self._side_px, self._rows_left = side_px, [0] * len(tiles_nhwc)
        self._lock = threading.Lock()
        spec, t = array.spec, array.spec.chunk_px
        self._size_wh = spec.width_px, spec.height_px
        for index, (x, y) in enumerate(self.corners):
            columns = range(x // t, min((x + side_px - 1) // t, spec.columns - 1) + 1)
            rows = range(y // t, min((y + side_px - 1) // t, spec.rows - 1) + 1)
            self._rows_left[index] = len(rows)
            if not self.is_resized:
                self._whiten(tiles_nhwc[index], index)
            for row in rows:
                in_row = self.touching.setdefault(row, {})
                for column in columns:
                    in_row.setdefault(column, []).append(index)

    def level_tile(self, index: int) -> Pixels:
        """Memory for a tile's level pixels; for resized tiles it is separate, and allocated with their first row."""
        if not self.is_resized:
            return self.tiles_nhwc[index]
        with self._lock:
            if index not in self._level_tiles:
                self._level_tiles[index] = np.empty((self._side_px, self._side_px, 3), np.uint8)
                self._whiten(self._level_tiles[index], index)
            return self._level_tiles[index]

    def take_level_tile(self, index: int) -> Pixels:
        """Remove and return the level pixels of a complete tile."""
        with self._lock:
            return self._level_tiles.pop(index)

    def finished_by(self, row: int) -> list[int]:
        """Tiles that this row of chunks has completed."""
        finished = []
        with self._lock:
            for index in {index for tiles in self.touching[row].values() for index in tiles}:
                self._rows_left[index] -= 1
                if self._rows_left[index] == 0:
                    finished.append(index)
        return finished

    def _whiten(self, tile: Pixels, index: int) -> None:
        """Whiten a tile that extends beyond the slide's edge."""
        (x, y), (width_px, height_px) = self.corners[index], self._size_wh
        if x + self._side_px > width_px or y + self._side_px > height_px:
            tile[...] = FILL_VALUE


def _paste(tile: Pixels, chunk: Pixels | int, x_px: int, y_px: int, inside_wh: tuple[int, int]) -> None:
    """Copy the part of a chunk that is on a tile; the chunk begins at (x_px, y_px) of the tile."""
    left, top = max(0, x_px), max(0, y_px)
    right, bottom = min(tile.shape[1], x_px + inside_wh[0]), min(tile.shape[0], y_px + inside_wh[1])
    if right <= left or bottom <= top:
        return
    target = tile[top:bottom, left:right]
    target[...] = chunk if isinstance(chunk, int) else chunk[top - y_px : bottom - y_px, left - x_px : right - x_px]


def _runs(columns: list[int]) -> Iterator[range]:
    """Group neighbouring columns."""
    start = end = columns[0]
    for column in columns[1:]:
        if column != end + 1:
            yield range(start, end + 1)
            start = column
        end = column
    yield range(start, end + 1)
