"""Tiles of blocks in batches, read ahead by threads while the network works; each chunk is decoded once in a square."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels
from pipeline.inference.blocks import Block, TileSource
from pipeline.stain import Normaliser
from pipeline.store.array_reader import ArrayReader
from pipeline.store.layout import FILL_VALUE
from pipeline.store.qc_scores import slide_normaliser
from pipeline.store.reader import StoreReader, resize_square, square_side_px
from pipeline.store.threads import CORES

Bytes = NDArray[np.uint8]

AHEAD_BYTES = 256 * 2**20
"""Of finished tiles that wait for the network; one batch at least."""


@dataclass
class ReadSeconds:
    """Seconds that threads spent; two that read at a time count twice."""

    read: float = 0.0
    decode: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, read_s: float, decode_s: float) -> None:
        with self._lock:
            self.read += read_s
            self.decode += decode_s


class SquareReader:
    """Reads tiles of one source. Safe in threads."""

    def __init__(self, source: TileSource, seconds: ReadSeconds) -> None:
        reader = StoreReader(source.store)
        self._source, self._seconds = source, seconds
        self._array: ArrayReader = reader.levels[source.level].array
        self._downsample = reader.levels[source.level].downsample
        self._side_px = square_side_px(source.side_px0, self._downsample)
        self._normalise: Normaliser | None = slide_normaliser(reader, dict(source.stain)) if source.stain else None

    def read(self, corners_xy0: NDArray[np.int64], tiles_nhwc: list[Pixels]) -> None:
        """Fill finished tiles, pixel for pixel as `StoreReader.read_square` gives them.

        Args:
            corners_xy0: (tiles, 2), near each other.
            tiles_nhwc: memory for each, uint8 (tile_px, tile_px, 3).
        """
        corners_xy = np.round(corners_xy0 / self._downsample).astype(np.int64)
        is_finished = self._side_px == self._source.tile_px
        shape = (self._side_px, self._side_px, 3)
        level_tiles = tiles_nhwc if is_finished else [np.empty(shape, np.uint8) for _ in tiles_nhwc]
        self._fill(corners_xy, level_tiles)
        start = time.perf_counter()
        for finished, tile in zip(tiles_nhwc, level_tiles, strict=True):
            if not is_finished:
                resize_square(tile, self._source.tile_px, out=finished)
            if self._normalise:
                finished[...] = self._normalise(finished)
        self._seconds.add(0.0, time.perf_counter() - start)

    def _fill(self, corners_xy: NDArray[np.int64], tiles: list[Pixels]) -> None:
        """Level pixels of each tile."""
        t, spec = self._array.spec.chunk_px, self._array.spec
        first_cr = corners_xy // t
        last_cr = (corners_xy + self._side_px - 1) // t
        touching: dict[int, dict[int, list[int]]] = {}
        for index, ((c0, r0), (c1, r1)) in enumerate(zip(first_cr.tolist(), last_cr.tolist(), strict=True)):
            if (
                corners_xy[index, 0] + self._side_px > spec.width_px
                or corners_xy[index, 1] + self._side_px > spec.height_px
            ):
                tiles[index][...] = FILL_VALUE
            for row in range(r0, min(r1, spec.rows - 1) + 1):
                in_row = touching.setdefault(row, {})
                for column in range(c0, min(c1, spec.columns - 1) + 1):
                    in_row.setdefault(column, []).append(index)
        read_s = decode_s = 0.0
        corners = corners_xy.tolist()  # plain numbers: numpy gives single ones slowly
        for row, in_row in sorted(touching.items()):
            for columns in _runs(sorted(in_row)):
                start = time.perf_counter()
                streams = self._array.chunks(row, columns)
                read_s += (middle := time.perf_counter()) - start
                for column, stream in zip(columns, streams, strict=True):
                    chunk = FILL_VALUE if stream is None else self._array.decode(stream, row, column)
                    inside_wh = self._inside(row, column)
                    for index in in_row[column]:
                        x_px, y_px = column * t - corners[index][0], row * t - corners[index][1]
                        _paste(tiles[index], chunk, x_px, y_px, inside_wh)
                decode_s += time.perf_counter() - middle
        self._seconds.add(read_s, decode_s)

    def _inside(self, row: int, column: int) -> tuple[int, int]:
        """Width and height of a chunk's part that lies on the slide."""
        spec, t = self._array.spec, self._array.spec.chunk_px
        return min(t, spec.width_px - column * t), min(t, spec.height_px - row * t)


def _paste(tile: Pixels, chunk: Pixels | int, x_px: int, y_px: int, inside_wh: tuple[int, int]) -> None:
    """Put a chunk's part that lies on a tile there; the chunk begins at (x_px, y_px) of the tile."""
    left, top = max(0, x_px), max(0, y_px)
    right, bottom = min(tile.shape[1], x_px + inside_wh[0]), min(tile.shape[0], y_px + inside_wh[1])
    if right <= left or bottom <= top:
        return
    target = tile[top:bottom, left:right]
    target[...] = chunk if isinstance(chunk, int) else chunk[top - y_px : bottom - y_px, left - x_px : right - x_px]


def _runs(columns: list[int]) -> Iterator[range]:
    """Neighbours together."""
    start = end = columns[0]
    for column in columns[1:]:
        if column != end + 1:
            yield range(start, end + 1)
            start = column
        end = column
    yield range(start, end + 1)


@dataclass(frozen=True)
class Batch:
    """Tiles that go through the network together."""

    number: int
    """In the slide's plan."""
    tiles_nhwc: NDArray[np.uint8]
    looked_at: NDArray[np.bool_]
    job: int


@dataclass
class _BlockInWork:
    batches: deque[Batch]
    """Those that were not given out yet."""
    reading: deque[tuple[int, Future[None]]]
    """What is being read, with the first of the block's tiles in it."""
    num_given: int
    """Tiles that were given out."""
    memory: Bytes


class TileFeed:
    """Batches of the blocks that were added, in order; those to come are read while the caller works.

    Use as a context manager.
    """

    def __init__(self, *, threads: int = CORES) -> None:
        self.seconds = ReadSeconds()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tiles")
        self._blocks: deque[_BlockInWork] = deque()
        self._reader: tuple[TileSource, SquareReader] | None = None
        self._free: list[Bytes] = []
        """Memory of blocks that are done: fresh memory costs a fifth of the time that decoding takes."""
        self._lent: Bytes | None = None
        self._largest_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    @property
    def job(self) -> int:
        """Of the next batch."""
        return self._blocks[0].batches[0].job

    @property
    def has_room(self) -> bool:
        """Whether another block may be added: one is always read ahead of the one in work."""
        return len(self._blocks) < 2 or sum(block.memory.nbytes for block in self._blocks) < AHEAD_BYTES

    def add(self, block: Block) -> None:
        """Begin to read a block.

        Raises:
            UnreadableError: its store is damaged, or its stain was never fitted.
        """
        if self._reader is None or self._reader[0] != block.source:
            self._reader = block.source, SquareReader(block.source, self.seconds)
        side_px = block.source.tile_px
        shape = (len(block.corners_xy0), side_px, side_px, 3)
        memory = self._memory(math.prod(shape))
        tiles_nhwc = memory[: math.prod(shape)].reshape(shape)
        starts = [0, *(np.flatnonzero(np.diff(block.squares)) + 1).tolist(), len(tiles_nhwc)]
        reading = deque(
            (start, self._pool.submit(self._reader[1].read, block.corners_xy0[start:end], list(tiles_nhwc[start:end])))
            for start, end in pairwise(starts)
        )
        batches = deque(
            Batch(number, tiles_nhwc[block.tiles_of(index)], block.looked_at[block.tiles_of(index)], block.job)
            for index, number in enumerate(block.batches)
        )
        self._blocks.append(_BlockInWork(batches, reading, 0, memory))

    def next(self) -> Batch:
        """The next batch; waits until it was read. Its tiles stay as they are until the next call.

        Raises:
            CorruptTileError, UnreadableError: what reading it said.
        """
        if self._lent is not None and self._lent.nbytes == self._largest_bytes:
            self._free.append(self._lent)
        self._lent = None
        block = self._blocks[0]
        batch = block.batches.popleft()
        block.num_given += len(batch.tiles_nhwc)
        while block.reading and block.reading[0][0] < block.num_given:
            block.reading.popleft()[1].result()
        if not block.batches:
            self._lent = self._blocks.popleft().memory
        return batch

    def _memory(self, num_bytes: int) -> Bytes:
        """Of a block that is done. All are as large as the largest so far, so that each serves for any."""
        if num_bytes > self._largest_bytes:
            self._largest_bytes = num_bytes
            self._free.clear()
        return self._free.pop() if self._free else np.empty(self._largest_bytes, np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
