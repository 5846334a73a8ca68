"""Batches of tiles, read ahead by threads while the network works."""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.blocks import Block, TileSource
from pipeline.batches.squares import ReadSeconds, SquareReader
from pipeline.store.reading.memory import bytes_at
from pipeline.store.reading.threads import CORES

Bytes = NDArray[np.uint8]

AHEAD_BYTES = 256 * 2**20
"""Size of finished tiles that wait for the network; one batch at least."""
CACHE_LINE = 64
"""Bytes. Rows of tiles that fill whole lines are copied a tenth faster."""


@dataclass(frozen=True)
class Batch:
    """Tiles that go through the network together."""

    number: int
    """Number in the slide's plan."""
    tiles_nhwc: NDArray[np.uint8]
    looked_at: NDArray[np.bool_]
    job: int


@dataclass
class _BlockInWork:
    batches: deque[Batch]
    """Batches not yet handed out."""
    reading: deque[tuple[int, Future[None]]]
    """Parts being read or still to be read, with the first of the block's tiles in each."""
    num_given: int
    """Tiles handed out."""
    memory: Bytes


class TileFeed:
    """Batches of the added blocks, in order; the next ones are read while the caller works.

    Use as a context manager.
    """

    def __init__(self, *, threads: int = CORES) -> None:
        self.seconds = ReadSeconds()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tiles")
        self._blocks: deque[_BlockInWork] = deque()
        self._reader: tuple[TileSource, SquareReader] | None = None
        self._free: list[Bytes] = []
        """Memory of finished blocks, for reuse: new memory costs a fifth of the decoding time."""
        self._lent: Bytes | None = None
        self._largest_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    @property
    def job(self) -> int:
        """Job of the next batch."""
        return self._blocks[0].batches[0].job

    @property
    def has_room(self) -> bool:
        """Whether another block may be added: one is always read ahead of the current one."""
        return len(self._blocks) < 2 or sum(block.memory.nbytes for block in self._blocks) < AHEAD_BYTES

    def add(self, block: Block) -> None:
        """Start reading a block.

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
        reader = self._reader[1]
        reading = deque(
            (part.first_tile, self._pool.submit(part.work))
            for start, end in pairwise(starts)
            for part in reader.parts(block.corners_xy0[start:end], list(tiles_nhwc[start:end]), first_tile=start)
        )
        batches = deque(
            Batch(number, tiles_nhwc[block.tiles_of(index)], block.looked_at[block.tiles_of(index)], block.job)
            for index, number in enumerate(block.batches)
        )
        self._blocks.append(_BlockInWork(batches, reading, 0, memory))

    def next(self) -> Batch:
        """The next batch, once it has been read. Its tiles do not change until the feed is used again.

        Raises:
            CorruptTileError, UnreadableError: it could not be read.
        """
        self._take_back()
        block = self._blocks[0]
        batch = block.batches.popleft()
        block.num_given += len(batch.tiles_nhwc)
        while block.reading and block.reading[0][0] < block.num_given:
            block.reading.popleft()[1].result()
        if not block.batches:
            self._lent = self._blocks.popleft().memory
        return batch

    def _take_back(self) -> None:
        """Reclaim the memory of a block whose last batch was handed out."""
        if self._lent is not None and self._lent.nbytes == self._largest_bytes:
            self._free.append(self._lent)
        self._lent = None

    def _memory(self, num_bytes: int) -> Bytes:
        """Memory for a block, reused if possible. All are as large as the largest so far, so that any will do."""
        self._take_back()
        if num_bytes > self._largest_bytes:
            self._largest_bytes = num_bytes
            self._free.clear()
        return self._free.pop() if self._free else bytes_at(self._largest_bytes, multiple_of=CACHE_LINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
