"""Reads of a level in a bucket: whatever a region needs is fetched at the same time.

A shard's index takes one request, a region's chunks one more for each run of neighbours. An object that was replaced is
noticed by its ETag; that the whole store was replaced, by its root's `zarr.json`, which is looked at again with the
first chunks of each shard. The array's own would not do: of two slides of one size it is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from pipeline.errors import CorruptTileError
from pipeline.places.bucket import ObjectState, state_now
from pipeline.places.byte_source import Range, read_json_at, read_ranges, results_of
from pipeline.places.object_path import ObjectPath
from pipeline.store.format.inside import INGEST_AGAIN
from pipeline.store.format.layout import ArraySpec
from pipeline.store.reading.array_reader import (
    MAX_ARRAY_JSON_BYTES,
    MAX_OPEN_SHARDS,
    REPLACED,
    ArrayReader,
    Chunks,
    Shard,
)
from training.foundation.errors import UnreadableError

MAX_FETCHED_BYTES = 2**29
"""Of chunks in memory before they are decoded, if each were as long as one can be; in fact, a few dozen megabytes."""

Fetched = dict[tuple[int, int], bytes | None]
"""Streams of chunks by (row, column); None for one that is white."""


def _looked_up(fetched: Fetched, row: int, columns: range) -> list[bytes | None]:
    return [fetched[row, column] for column in columns]


class _ObjectShard:
    """A shard (None: it does not exist), as found in one state of the store."""

    def __init__(self, shard: Shard | None) -> None:
        self.shard = shard
        self.is_checked = False
        """Whether the store was still the same after the shard had been opened."""


@lru_cache(maxsize=MAX_OPEN_SHARDS)
def _open_shard(path: ObjectPath, num_chunks: int, max_chunk_bytes: int, _root: ObjectState) -> _ObjectShard:
    """Raises UnreadableError, CorruptTileError."""
    try:
        return _ObjectShard(Shard(path, num_chunks, max_chunk_bytes))
    except FileNotFoundError:
        return _ObjectShard(None)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be opened ({error.strerror}).") from error
    except ValueError as error:
        raise CorruptTileError(f"{path}: {error}. {INGEST_AGAIN}") from error


class ObjectArrayReader(ArrayReader):
    """Reads the chunks and regions of a level in a bucket. Safe in threads, and pickled, but not in forked workers.

    Raises, besides what `ArrayReader` does:
        UnreadableError: the bucket does not answer as it should, or the store was replaced.
    """

    path: ObjectPath

    def __init__(self, path: ObjectPath, spec: ArraySpec, root_state: ObjectState) -> None:
        """Args: root_state: of the store's own `zarr.json`, by which another slide in its place is noticed."""
        super().__init__(path, spec)
        self._root_state = root_state

    @classmethod
    def open_at(cls, path: ObjectPath, root_state: ObjectState, plane: int) -> ObjectArrayReader:
        """Open by the array's own `zarr.json`; see `ArrayReader.open`.

        Raises:
            UnreadableError: missing, not an array of a slide store, or one that points at a slide's file.
        """
        try:
            meta = read_json_at(path / "zarr.json", max_bytes=MAX_ARRAY_JSON_BYTES)
            spec = ArraySpec.from_zarr_json(meta).at_plane(plane)
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: {error}. {INGEST_AGAIN}") from error
        if spec.link is not None:
            raise UnreadableError(
                f"{path}: points at a slide's file, and the store is not a linked one. {INGEST_AGAIN}"
            )
        return cls(path, spec, root_state)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ObjectArrayReader, (self.path, self.spec, self._root_state))

    def chunks(self, row: int, columns: range) -> list[bytes | None]:
        return _looked_up(self._fetch(range(row, row + 1), columns), row, columns)

    def fetched(self, rows: range, columns: range) -> Iterator[tuple[range, Chunks]]:
        at_once = max(1, MAX_FETCHED_BYTES // self.spec.max_chunk_bytes // len(columns))
        for start in range(rows.start, rows.stop, at_once):
            some_rows = range(start, min(start + at_once, rows.stop))
            yield some_rows, partial(_looked_up, self._fetch(some_rows, columns))

    def _fetch(self, rows: range, columns: range) -> Fetched:
        """Streams of a block of chunks, their checksums verified; None for those that are white."""
        n = self.spec.shard_chunks
        shard_rows, shard_columns = (range(side.start // n, (side.stop - 1) // n + 1) for side in (rows, columns))
        places = list(itertools.product(shard_rows, shard_columns))
        shards = results_of(self.path, (partial(self._opened, *place) for place in places))
        opened = dict(zip(places, shards, strict=True))
        wanted: dict[tuple[int, int], Range] = {}
        for row, column in itertools.product(rows, columns):
            shard, at = opened[row // n, column // n].shard, row % n * n + column % n
            if shard is not None and shard.counts[at]:
                wanted[row, column] = (shard.source, shard.offsets[at], shard.offsets[at] + shard.counts[at])
        streams = self._read_all(wanted, [shard for shard in opened.values() if not shard.is_checked])
        return {place: streams.get(place) for place in itertools.product(rows, columns)}

    def _read_all(
        self, wanted: dict[tuple[int, int], Range], unchecked: list[_ObjectShard]
    ) -> dict[tuple[int, int], bytes]:
        try:
            pieces = read_ranges(list(wanted.values()), beside=self._check_same if unchecked else None)
        except OSError as error:
            raise UnreadableError(f"{self.path}: cannot be read ({error.strerror}).") from error
        for shard in unchecked:
            shard.is_checked = True
        return {place: self._whole(piece, wanted[place], *place) for place, piece in zip(wanted, pieces, strict=True)}

    def _whole(self, piece: bytes, wanted: Range, row: int, column: int) -> bytes:
        _, start, end = wanted
        if len(piece) != end - start:
            raise self._corrupt(row, column, f"{len(piece)} of {end - start} bytes")
        return self._stream(piece, 0, len(piece), row, column)

    def _check_same(self) -> None:
        """Raises UnreadableError: the store's `zarr.json` is another one than when it was opened."""
        root = self.path.parents[1] / "zarr.json"
        try:
            state = state_now(root.bucket, root.key)
        except FileNotFoundError:
            state = None
        if state != self._root_state:
            raise UnreadableError(f"{self.path}: {REPLACED}")

    def _opened(self, shard_row: int, shard_column: int) -> _ObjectShard:
        path, spec = self.path / self.spec.shard_key(shard_row, shard_column), self.spec
        return _open_shard(path, spec.shard_chunks**2, spec.max_chunk_bytes, self._root_state)

    def _shard(self, shard_row: int, shard_column: int) -> Shard | None:
        opened = self._opened(shard_row, shard_column)
        if not opened.is_checked:
            self._read_all({}, [opened])
        return opened.shard
