"""Blocks of tiles through one network on one device: reading, copying and computing overlap."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.batches.blocks import Block
from pipeline.batches.journal import BatchResult
from pipeline.batches.network import TileNetwork
from pipeline.batches.reading import Batch, TileFeed
from pipeline.store.reading.threads import CORES

Take = Callable[[bool], Block | None]
"""Returns the next block. Its argument: whether to wait, as there is nothing else to do; None then means the end."""
BEGUN_ON_GPU = 2
"""Batches on a GPU at a time: one is computed while the next is copied. A CPU finishes a batch when it starts it."""


@dataclass
class Seconds:
    """Time breakdown: threads that read and decode, the device, and the device's waiting."""

    read: float = 0.0
    decode: float = 0.0
    transfer: float = 0.0
    compute: float = 0.0
    waiting: float = 0.0
    """For tiles, with the device idle."""

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(*(mine - theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))


class BlockRunner:
    """Computes blocks as they arrive. Use as a context manager; results are in the order of the blocks."""

    def __init__(self, network: TileNetwork, *, threads: int = CORES) -> None:
        self._network, self._waiting_s = network, 0.0
        self.job = 0
        """Job of the current batch, to which an error belongs."""
        self._feed = TileFeed(threads=threads)
        self._before = Seconds(transfer=network.seconds.transfer, compute=network.seconds.compute)

    def __enter__(self) -> BlockRunner:
        self._feed.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._feed.__exit__(*exc)

    @property
    def seconds(self) -> Seconds:
        """Time breakdown of all work so far."""
        reading, device = self._feed.seconds, self._network.seconds
        return Seconds(reading.read, reading.decode, device.transfer, device.compute, self._waiting_s) - self._before

    def results(self, take: Take) -> Iterator[BatchResult]:
        """Results of all batches of the blocks that are taken.

        Raises:
            CorruptTileError, UnreadableError: the store. ImplausibleOutputError: the network.
        """
        begun: deque[tuple[int, Callable[[], BatchResult]]] = deque()
        most_begun = BEGUN_ON_GPU if self._network.run_on.device.startswith("cuda") else 1
        while True:
            self._add_blocks(take, may_wait=not begun)
            if not self._feed.is_empty:
                self.job, start = self._feed.job, time.perf_counter()
                batch = self._feed.next()
                self._waiting_s += time.perf_counter() - start
                begun.append((batch.job, self._begin(batch)))
            elif not begun:
                return
            while len(begun) >= most_begun or (begun and self._feed.is_empty):
                self.job, result = begun.popleft()
                yield result()

    def _add_blocks(self, take: Take, *, may_wait: bool) -> None:
        while self._feed.has_room:
            block = take(may_wait and self._feed.is_empty)
            if block is None:
                return
            self._feed.add(block)

    def _begin(self, batch: Batch) -> Callable[[], BatchResult]:
        values = self._network.start(batch.tiles_nhwc)
        looks_n3 = self._network.looks(batch.tiles_nhwc[batch.looked_at])
        return lambda: BatchResult(batch.number, values(), looks_n3, batch.job)
