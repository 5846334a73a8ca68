"""Finished batches of one slide and network, on disk until the results are published: a killed run resumes there."""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.files import explain_unwritable
from training.foundation.errors import ImplausibleOutputError, LockedError
from training.foundation.locks import lock_temporary
from training.foundation.publish import RESUME_KEY, fsync_dir, remove, write_text_atomic
from training.foundation.reading import read_regular

_RECORD = struct.Struct("<IIIII")
"""Number of the batch, tiles, columns, tiles whose appearance follows, CRC-32 of all that follows."""
SYNC_EVERY_S = 1.0
"""A killed process loses nothing that was written; a power cut loses at most this."""


@dataclass(frozen=True)
class BatchResult:
    """Results of a batch of tiles."""

    number: int
    values_nk: NDArray[np.float32]
    """One row for each tile."""
    looks_n3: NDArray[np.float64]
    """Hue (two numbers) and focus of those of its tiles that were measured."""
    job: int = 0
    """Job of the block that it was in."""

    def to_bytes(self) -> bytes:
        """A record, as `_records` reads it."""
        payload = self.values_nk.astype("<f4").tobytes() + self.looks_n3.astype("<f8").tobytes()
        tiles, columns = self.values_nk.shape
        return _RECORD.pack(self.number, tiles, columns, len(self.looks_n3), zlib.crc32(payload)) + payload


class Journal:
    """Results written so far, and those of a run that was killed. See `open_journal`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._synced = time.monotonic()
        self.finished: dict[int, BatchResult] = {}
        end = 0
        for result, end in _records(os.pread(descriptor, os.fstat(descriptor).st_size, 0)):  # noqa: B007
            self.finished[result.number] = result
        os.ftruncate(descriptor, end)  # the last record may be incomplete
        os.lseek(descriptor, end, os.SEEK_SET)

    def add(self, result: BatchResult) -> None:
        """Keep a batch's result.

        Raises:
            DiskFullError: no space.
        """
        with explain_unwritable(self._path):
            view = memoryview(result.to_bytes())
            while view:
                view = view[os.write(self._descriptor, view) :]
            if time.monotonic() - self._synced >= SYNC_EVERY_S:
                os.fsync(self._descriptor)
                self._synced = time.monotonic()
        self.finished[result.number] = result


@contextmanager
def open_journal(final: Path, key: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal of results to be published as `final`; it is removed when the block ends without an error.

    If the block ends otherwise, the journal is left for the next run with the same key, unless the model's output was
    implausible or, after an error, it holds no batch yet. A journal with another key is restarted.

    Args:
        key: all that the results of its batches depend on, as JSON.

    Raises:
        LockedError: another process is doing the same. DiskFullError: not writable.
    """
    folder = _journal_folder(final)
    with explain_unwritable(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_temporary(folder, final, lambda: _make_and_open(folder))
    finished: dict[int, BatchResult] = {}
    try:
        with explain_unwritable(final):
            _keep_if_same(folder, json.dumps(key, sort_keys=True))
            descriptor = os.open(folder / "batches", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            journal = Journal(folder / "batches", descriptor)
            finished = journal.finished
            yield journal
        finally:
            os.close(descriptor)
    except BaseException as error:
        if isinstance(error, ImplausibleOutputError) or (isinstance(error, Exception) and not finished):
            _remove(folder)
        raise
    else:
        _remove(folder)
    finally:
        os.close(lock)


def forget_journal(final: Path) -> None:
    """Remove the journal of published results, if a killed run left one and no process uses it."""
    folder = _journal_folder(final)
    if not folder.is_dir() or folder.is_symlink():
        return
    try:
        lock = lock_temporary(folder, final, lambda: _make_and_open(folder))
    except (LockedError, OSError):  # in use; or not writable, which is reported when something must be written
        return
    try:
        remove(folder)
    finally:
        os.close(lock)


def _journal_folder(final: Path) -> Path:
    return final.with_name(f".{final.name}.batches.partial")


def _remove(folder: Path) -> None:
    """Remove the journal's folder, and those above it that were made for it alone."""
    remove(folder)
    with suppress(OSError):  # not empty
        folder.parent.rmdir()
        folder.parent.parent.rmdir()


def _make_and_open(folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _keep_if_same(folder: Path, key: str) -> None:
    """Delete files of a run with another key. The name of the key's file keeps the folder from being cleaned up."""
    path = folder / RESUME_KEY
    if path.is_file() and read_regular(path, max_bytes=2**20) == key.encode():
        return
    for child in folder.iterdir():
        remove(child)
    write_text_atomic(path, key)
    fsync_dir(folder)


def _records(data: bytes) -> Iterator[tuple[BatchResult, int]]:
    """Records, and where each ends, up to the first incomplete one."""
    at = 0
    while at + _RECORD.size <= len(data):
        number, tiles, columns, looked_at, crc = _RECORD.unpack_from(data, at)
        values_bytes, looks_bytes = 4 * tiles * columns, 24 * looked_at
        start = at + _RECORD.size
        payload = data[start : start + values_bytes + looks_bytes]
        if len(payload) < values_bytes + looks_bytes or zlib.crc32(payload) != crc:
            return
        at = start + len(payload)
        values = np.frombuffer(payload[:values_bytes], "<f4").reshape(tiles, columns)
        looks = np.frombuffer(payload[values_bytes:], "<f8").reshape(looked_at, 3)
        yield BatchResult(number, values.astype(np.float32), looks.astype(np.float64)), at
