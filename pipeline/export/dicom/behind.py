"""A file written behind: a thread writes a piece and starts the disk, while the next pieces are read and checked."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO

_PIECE_BYTES = 2**20
"""Small enough to stay in the processor's cache, and large enough that the threads seldom wait for each other."""
_MAX_WAITING_BYTES = 8 * 2**20
"""Unless a single piece is longer."""
_DISK_BYTES = 8 * 2**20
_BUFFERS_AT_ONCE = 1000
"""Of one call; Linux takes 1,024."""


class WrittenBehind:
    """Appends buffers to a file. Once its block is left without an error, the operating system has all of them.

    Args:
        stream: a file open for writing, at its end. Nothing else uses it within the block.

    Raises:
        OSError: they could not be written; from a later call, or at the end of the block.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._pending: deque[tuple[Future[None], int]] = deque()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="write")

    def __enter__(self) -> WrittenBehind:
        self._stream.flush()
        self._descriptor = self._stream.fileno()
        self._at = self._on_its_way = self._stream.tell()
        return self

    def append(self, buffers: Sequence[bytes]) -> None:
        self._waiting += buffers
        self._waiting_bytes += sum(map(len, buffers))
        if self._waiting_bytes >= _PIECE_BYTES:
            self._submit()

    def __exit__(self, error_type: object, *others: object) -> None:
        with self._pool:
            if error_type is not None:
                self._pool.shutdown(cancel_futures=True)
                return
            self._submit()
            while self._pending:
                self._pending.popleft()[0].result()
        self._stream.seek(0, os.SEEK_END)

    def _submit(self) -> None:
        while self._pending and sum(length for _, length in self._pending) > _MAX_WAITING_BYTES - self._waiting_bytes:
            self._pending.popleft()[0].result()
        self._pending.append((self._pool.submit(self._write, self._waiting), self._waiting_bytes))
        self._waiting, self._waiting_bytes = [], 0

    def _write(self, buffers: list[bytes]) -> None:
        for first in range(0, len(buffers), _BUFFERS_AT_ONCE):
            some = buffers[first : first + _BUFFERS_AT_ONCE]
            written = os.writev(self._descriptor, some)
            if written < sum(map(len, some)):  # seldom: a disk that is almost full, or a signal
                rest = memoryview(b"".join(some))
                while written < len(rest):
                    written += os.write(self._descriptor, rest[written:])
            self._at += written
        if self._at - self._on_its_way >= _DISK_BYTES:
            self._start_disk()

    def _start_disk(self) -> None:
        """Linux begins to bring to disk what it hears will not be read again; `fsync` then has little to wait for."""
        length = self._at - self._on_its_way
        with suppress(OSError):  # it is only advice, and not every file system takes it
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._descriptor, self._on_its_way, length, os.POSIX_FADV_DONTNEED)
        self._on_its_way = self._at
