"""The bytes of one file of a store, opened once and read by position, from a folder or from a bucket."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.places.bucket import ObjectState, fetch, fetch_end, fetch_range
from pipeline.places.connection import MAX_AT_ONCE, side_by_side
from pipeline.places.object_path import ObjectPath, StorePath
from training.foundation.reading import open_regular, parse_json, read_regular

MAX_GAP_BYTES = 32 * 2**10
"""Between two ranges of an object that are fetched as one: less costs less than another request."""
MAX_FETCH_BYTES = 8 * 2**20
"""Of several ranges that are fetched as one."""


class ByteSource(Protocol):
    """An open file or object. It closes itself when it has been released."""

    num_bytes: int
    """Its length when it was opened."""

    def read(self, start: int, count: int) -> bytes:
        """Bytes from `start`; fewer at the end. Raises OSError: unreadable, or an object that was replaced (ESTALE)."""
        ...


Range = tuple[ByteSource, int, int]
"""Bytes of a source from a start to an end."""
T = TypeVar("T")


class FileBytes:
    """A regular file."""

    def __init__(self, path: Path | str) -> None:
        """Raises OSError: missing, not readable, or not a regular file."""
        self._descriptor = open_regular(path)
        self.num_bytes = self.status().st_size

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def read(self, start: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, start)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


class ObjectBytes:
    """An object, as it was when it was opened: one that has replaced it is not read."""

    def __init__(self, path: ObjectPath, end_bytes: int) -> None:
        """Args: end_bytes: its last bytes, which are fetched with its length. Raises OSError."""
        fetched = fetch_end(path.bucket, path.key, max(1, end_bytes))
        self._path, self._end = path, fetched.data
        self.state: ObjectState = fetched.state
        self.num_bytes = fetched.state.num_bytes

    def read(self, start: int, count: int) -> bytes:
        end = min(start + count, self.num_bytes)
        if start >= end:
            return b""
        kept_from = self.num_bytes - len(self._end)
        if start >= kept_from:
            return self._end[start - kept_from : end - kept_from]
        return fetch_range(self._path.bucket, self._path.key, start, end, self.state)


def open_bytes(path: StorePath | str, *, end_bytes: int = 0) -> ByteSource:
    """Open a file of a store.

    Args:
        end_bytes: of an object, its last bytes that are needed first, and are fetched with the same request.

    Raises:
        OSError: missing, not readable, or not a regular file.
    """
    return ObjectBytes(path, end_bytes) if isinstance(path, ObjectPath) else FileBytes(path)


def results_of(path: StorePath, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Results of calls that read below a path, in order: in turn from a folder, some at a time from a bucket."""
    if not isinstance(path, ObjectPath):
        yield from (call() for call in calls)
        return
    waiting = iter(calls)
    while some := list(itertools.islice(waiting, 2 * MAX_AT_ONCE)):
        yield from side_by_side(some)


def read_ranges(wanted: Sequence[Range], *, beside: Callable[[], None] | None = None) -> list[bytes]:
    """Bytes of many ranges, those that are near each other with one request; all requests are made at the same time.

    Args:
        beside: called at the same time, too.

    Raises:
        OSError: as `ByteSource.read`. What `beside` raises.
    """
    order = sorted(range(len(wanted)), key=lambda i: (id(wanted[i][0]), wanted[i][1:]))
    groups: list[list[int]] = []
    for i in order:
        if groups and _is_near(wanted[groups[-1][0]], wanted[groups[-1][-1]], wanted[i]):
            groups[-1].append(i)
        else:
            groups.append([i])
    spans = [(wanted[group[0]][0], wanted[group[0]][1], max(wanted[i][2] for i in group)) for group in groups]
    reads: list[Callable[[], bytes]] = [partial(source.read, start, end - start) for source, start, end in spans]
    pieces = side_by_side([*reads, partial(_nothing_after, beside)] if beside else reads)
    found = [b""] * len(wanted)
    for group, (_, first, _), piece in zip(groups, spans, pieces, strict=False):
        for i in group:
            found[i] = piece[wanted[i][1] - first : wanted[i][2] - first]
    return found


def _is_near(first: Range, last: Range, new: Range) -> bool:
    return new[0] is first[0] and new[1] - last[2] <= MAX_GAP_BYTES and new[2] - first[1] <= MAX_FETCH_BYTES


def _nothing_after(call: Callable[[], None]) -> bytes:
    call()
    return b""


def read_file(path: StorePath, *, max_bytes: int) -> bytes:
    """All bytes of a file of a store. Raises OSError: missing, not readable, no regular file, or too long."""
    if isinstance(path, ObjectPath):
        return fetch(path.bucket, path.key, max_bytes=max_bytes).data
    return read_regular(path, max_bytes=max_bytes)


def read_json_at(path: StorePath, *, max_bytes: int) -> Any:
    """Content of a JSON file of a store. Raises OSError, ValueError."""
    return parse_json(read_file(path, max_bytes=max_bytes))
