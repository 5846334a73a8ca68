"""Inputs of the first stage, read ahead in the order of the schedule while the rank computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor

from training.engine.saved import check_unchanged


class Readable(Protocol):
    """Source of the input of a micro-batch, callable from any thread."""

    def inputs(self, microbatch: int) -> Tensor: ...


class Feed:
    """The inputs that one rank takes."""

    def __init__(self, ahead: int = 0, *, pinned: bool = False) -> None:
        """Start the threads, if any, that read ahead.

        Args:
            ahead: most inputs being read or waiting; 0 reads each on demand.
            pinned: keep them in pinned memory, for a GPU that copies while it computes.
        """
        self._ahead = ahead
        self._pinned = pinned
        self._pool = ThreadPoolExecutor(ahead, thread_name_prefix="inputs") if ahead else None
        self._todo: deque[tuple[Readable, int]] = deque()
        self._taken: tuple[Tensor, int] | None = None
        self._coming: deque[tuple[Readable, int, Future[tuple[Tensor, int]]]] = deque()

    def follow(self, batch: Readable, microbatches: Sequence[int]) -> None:
        """Announce what will be taken after earlier batches; a batch announced already is ignored."""
        known = {id(source) for source, _ in self._todo} | {id(source) for source, _, _ in self._coming}
        if self._pool is None or id(batch) in known:
            return
        self._todo.extend((batch, microbatch) for microbatch in microbatches)
        self._fill()

    def take(self, batch: Readable, microbatch: int) -> Tensor:
        """Return the input of a micro-batch, or raise what its reading raised.

        Raises:
            ValueError: it was read ahead, and has changed since.
        """
        while self._coming and not (self._coming[0][0] is batch and self._coming[0][1] == microbatch):
            self._coming.popleft()[2].cancel()  # of a batch that was announced but never taken
            self._fill()
        if not self._coming:
            return batch.inputs(microbatch)
        future = self._coming.popleft()[2]
        self._taken = value, version = future.result()
        check_unchanged(value, version)
        self._fill()
        return value

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Check that the input taken inside does not change before the end; the next may be read meanwhile.

        Raises:
            ValueError: it changed.
        """
        yield
        taken, self._taken = self._taken, None
        if taken is not None:
            check_unchanged(*taken)

    def close(self) -> None:
        """Stop reading."""
        self._todo.clear()
        if self._pool is not None:
            self._pool.shutdown()

    def _fill(self) -> None:
        assert self._pool is not None
        while self._todo and len(self._coming) < self._ahead:
            batch, microbatch = self._todo.popleft()
            self._coming.append((batch, microbatch, self._pool.submit(self._read, batch, microbatch)))

    def _read(self, batch: Readable, microbatch: int) -> tuple[Tensor, int]:
        value = batch.inputs(microbatch)
        value = value.pin_memory() if self._pinned else value
        return value, value._version
