"""Fast reads of one level: cached shard indexes, pread, checksums, chunks decoded straight into y,x,c."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from pipeline.box import Box
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError
from pipeline.places.byte_source import open_bytes, results_of
from pipeline.places.object_path import StorePath
from pipeline.store.format.chunks import decode_chunk
from pipeline.store.format.inside import INGEST_AGAIN, check_inside, real_store_of
from pipeline.store.format.layout import FILL_VALUE, ArraySpec
from pipeline.store.format.shard import CHECKSUM_BYTES, MISSING, index_bytes, read_index, without_checksum
from pipeline.store.reading.memory import bytes_at
from pipeline.store.reading.threads import parallel_for
from training.foundation.errors import UnreadableError
from training.foundation.reading import read_json_file

_READERS = itertools.count()
"""Numbers of readers: a new reader never sees the shards that an older one of the same path had open."""

MAX_OPEN_SHARDS = 256
"""In the whole process: a large slide has hundreds of shards, and many systems allow 1024 open files."""

MAX_READ_BYTES = 64 * 2**20
"""Of neighbouring chunks in one read."""
MAX_ARRAY_JSON_BYTES = 2**20
MAX_BAND_BYTES = 2**28
"""Of pixels in memory while a whole level is read into a small image."""


REPLACED = "the store was replaced, moved or deleted while it was being read. Open it again."


class Shard:
    """An open shard, which closes itself when the cache and the last thread that reads it have released it."""

    def __init__(self, path: StorePath | str, num_chunks: int, max_chunk_bytes: int) -> None:
        """Raises OSError: missing or unreadable. ValueError: its index is damaged."""
        self.source = open_bytes(path, end_bytes=index_bytes(num_chunks))
        index = read_index(self.source, num_chunks, max_chunk_bytes)
        # Plain numbers: the reader looks up single entries, which is slow in numpy.
        self.offsets: list[int] = np.where(index[:, 0] == MISSING, 0, index[:, 0]).tolist()
        self.counts: list[int] = np.where(index[:, 0] == MISSING, 0, index[:, 1]).tolist()


Identity = tuple[int, int]
"""Inode and modification time of an array's `zarr.json`: another one means that the store was replaced."""


def _identity(array_dir: str) -> Identity | None:
    try:
        status = os.stat(f"{array_dir}/zarr.json")
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


class _Shards(NamedTuple):
    """Values that opening a shard of one reader's array depends on."""

    reader: int
    array_dir: str
    real_store: str
    """The store's folder, resolved: shards are below it."""
    num_chunks: int
    max_chunk_bytes: int
    identity: Identity | None


@lru_cache(maxsize=MAX_OPEN_SHARDS)
def _open_shard(shards: _Shards, key: str) -> Shard | None:
    """A shard of one reader; None if there is no file, that is if everything in it is white."""
    path = f"{shards.array_dir}/{key}"
    check_inside(path, shards.real_store)
    shard: Shard | None = None
    damage: Exception | None = None
    try:
        shard = Shard(path, shards.num_chunks, shards.max_chunk_bytes)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        damage = error
    # Checked after the shard was opened. Otherwise a store deleted under a reader would be white,
    # and a replaced one would be a mixture of two slides.
    if shards.identity is not None and _identity(shards.array_dir) != shards.identity:
        raise UnreadableError(f"{shards.array_dir}: {REPLACED}")
    if isinstance(damage, OSError):
        raise UnreadableError(f"{path}: cannot be opened ({damage.strerror}). {INGEST_AGAIN}") from damage
    if damage is not None:
        raise CorruptTileError(f"{path}: {damage}. Delete the store and ingest the slide again.") from damage
    return shard


_THREAD = threading.local()


def _scratch(chunk_px: int) -> Pixels:
    """This thread's memory for one decoded chunk: reused, it stays in the processor's cache.

    It begins 16 bytes after a multiple of 32. Where rows begin at one, libjpeg-turbo bypasses the cache and writes to
    main memory (`vmovntdq` in its colour conversion), which takes a quarter longer and costs the next reader a miss.
    """
    kept: Pixels | None = getattr(_THREAD, "scratch", None)
    if kept is None or len(kept) != chunk_px:
        memory = bytes_at(3 * chunk_px**2, multiple_of=32, plus=16)
        kept = _THREAD.scratch = memory.reshape(chunk_px, chunk_px, 3)
    return kept


Chunks = Callable[[int, range], list[bytes | None]]
"""Streams of neighbouring chunks of one row: `ArrayReader.chunks`, or what was fetched before."""


class ArrayReader:
    """Reads the chunks and regions of one level's array, of a stack at one plane.

    Safe in threads and in forked workers.
    """

    path: StorePath

    def __init__(self, path: StorePath, spec: ArraySpec, identity: Identity | None = None) -> None:
        """Args: path: two folders below the store. identity: as `open` found it; None: we are still writing it."""
        self.path, self.spec = path, spec
        real_store = real_store_of(path.parents[1])
        num_chunks, max_chunk_bytes = spec.shard_chunks**2, spec.max_chunk_bytes
        self._shards = _Shards(next(_READERS), str(path), real_store, num_chunks, max_chunk_bytes, identity)

    @classmethod
    def open(cls, path: Path, plane: int = 0) -> ArrayReader:
        """Open by the array's own `zarr.json`.

        Args:
            plane: number of a stack's focal plane.

        Raises:
            UnreadableError: missing, not an array of a slide store, or a link that leads out of the store.
        """
        meta = path / "zarr.json"
        check_inside(meta, real_store_of(path.parents[1]))
        try:
            identity = _identity(str(path))
            spec = ArraySpec.from_zarr_json(read_json_file(meta, max_bytes=MAX_ARRAY_JSON_BYTES)).at_plane(plane)
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: {error}. {INGEST_AGAIN}") from error
        return cls(path, spec, identity)

    def chunk(self, row: int, column: int) -> bytes | None:
        """A chunk's stream, its checksum verified and removed; None for a sparse one (all white).

        Raises:
            IndexError: outside the grid.
            CorruptTileError: the shard is damaged, or the chunk's bytes are not those that were written.
        """
        spec = self.spec
        if not (0 <= row < spec.rows and 0 <= column < spec.columns):
            raise IndexError(f"chunk row {row}, column {column}: the level has {spec.rows} × {spec.columns}")
        return self.chunks(row, range(column, column + 1))[0]

    def chunks(self, row: int, columns: range) -> list[bytes | None]:
        """Neighbouring chunks of one row inside the grid, those of a shard in one read if they are adjacent.

        Raises:
            CorruptTileError: as `chunk`.
        """
        n = self.spec.shard_chunks
        streams: list[bytes | None] = []
        for shard_column in range(columns.start // n, (columns.stop - 1) // n + 1):
            shard = self._shard(row // n, shard_column)
            first = max(columns.start, shard_column * n)
            count = min(columns.stop, (shard_column + 1) * n) - first
            if shard is None:
                streams += [None] * count
                continue
            at = row % n * n + first % n
            offsets, counts = shard.offsets[at : at + count], shard.counts[at : at + count]
            streams += self._read(shard, offsets, counts, row, first)
        return streams

    def coded_bytes(self) -> int:
        """Bytes of all chunks' streams.

        Raises:
            CorruptTileError: a shard is damaged.
        """
        places = itertools.product(range(self.spec.shard_rows), range(self.spec.shard_columns))
        shards = results_of(self.path, (partial(self._shard, *place) for place in places))
        counts = [count for shard in shards if shard for count in shard.counts if count]
        return sum(counts) - CHECKSUM_BYTES * len(counts) * self.spec.has_checksums

    def first_chunk(self) -> bytes | None:
        """The first chunk that is stored, in rows; None if all are white. Raises CorruptTileError."""
        spec = self.spec
        places = itertools.product(range(spec.rows), range(spec.columns))
        return next((chunk for place in places if (chunk := self.chunk(*place)) is not None), None)

    def _read(self, shard: Shard, offsets: list[int], counts: list[int], row: int, column: int) -> list[bytes | None]:
        stored = [(offset, offset + count) for offset, count in zip(offsets, counts, strict=True) if count]
        if not stored:
            return [None] * len(counts)
        start, end = min(stored)[0], max(stored)[1]
        if len(counts) > 1 and (end - start != sum(counts) or end - start > MAX_READ_BYTES):
            one_by_one = zip(offsets, counts, range(column, column + len(counts)), strict=True)
            return [self._read(shard, [offset], [count], row, c)[0] for offset, count, c in one_by_one]
        try:
            data = shard.source.read(start, end - start)
        except OSError as error:
            raise self._corrupt(row, column, error.strerror) from error
        if len(data) != end - start:
            raise self._corrupt(row, column, f"{len(data)} of {end - start} bytes")
        return [
            self._stream(data, offset - start, count, row, column + i) if count else None
            for i, (offset, count) in enumerate(zip(offsets, counts, strict=True))
        ]

    def _stream(self, data: bytes, start: int, count: int, row: int, column: int) -> bytes:
        """One chunk's stream from the bytes read, its checksum verified."""
        if not self.spec.has_checksums:
            return data[start : start + count]
        stream = without_checksum(data, start, start + count)
        if stream is None:
            raise self._corrupt(row, column, f"the checksum of its {count} bytes does not match")
        return stream

    def _shard(self, shard_row: int, shard_column: int) -> Shard | None:
        return _open_shard(self._shards, self.spec.shard_key(shard_row, shard_column))

    @property
    def identity(self) -> Identity | None:
        """Of its `zarr.json`, as `open` found it."""
        return self._shards.identity

    def __reduce__(self) -> tuple[Any, ...]:
        return (ArrayReader, (self.path, self.spec, self.identity))

    def decoded_chunk(self, row: int, column: int) -> Pixels | None:
        """A chunk's pixels, uint8 (chunk_px, chunk_px, 3); None for a sparse one."""
        data = self.chunk(row, column)
        return None if data is None else self._decoded(data, row, column)

    def decode(self, stream: bytes, row: int, column: int) -> Pixels:
        """Pixels of a chunk's stream, in memory that this thread reuses for the next one.

        Raises:
            CorruptTileError: cannot be decoded.
        """
        return self._decoded(stream, row, column, out=_scratch(self.spec.chunk_px))

    def _decoded(self, data: bytes, row: int, column: int, *, out: Pixels | None = None) -> Pixels:
        try:
            return decode_chunk(self.spec.codec, data, self.spec.chunk_px, out=out)
        except DecodeError as error:
            raise self._corrupt(row, column, error) from error

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(f"{self.path}: chunk in row {row}, column {column}: {why}. {INGEST_AGAIN}")

    def read_region(self, box: Box, *, threads: int = 1, out: Pixels | None = None) -> Pixels:
        """Pixels of the level, uint8 (box.height_px, box.width_px, 3); white outside it.

        Args:
            threads: chunks decoded at a time.
            out: memory to fill instead of new memory, of that shape.
        """
        spec, t = self.spec, self.spec.chunk_px
        region = np.empty((box.height_px, box.width_px, 3), np.uint8) if out is None else out
        inside = box.within(spec.width_px, spec.height_px)
        if inside.size_wh_px != box.size_wh_px:
            region[...] = FILL_VALUE
        if inside.is_empty:
            return region

        def paste(chunks: Chunks, row: int, first: int, end: int) -> None:
            """Decode neighbouring chunks of one row into their place."""
            top, bottom = max(inside.y_px, row * t), min(inside.bottom_px, (row + 1) * t)
            band = region[top - box.y_px : bottom - box.y_px]
            for column, data in zip(range(first, end), chunks(row, range(first, end)), strict=True):
                left, right = max(inside.x_px, column * t), min(inside.right_px, (column + 1) * t)
                part = band[:, left - box.x_px : right - box.x_px]
                if data is None:
                    part[...] = FILL_VALUE
                else:
                    chunk = self.decode(data, row, column)
                    part[...] = chunk[top - row * t : bottom - row * t, left - column * t : right - column * t]

        rows, columns = inside.cells(t)
        step = -(-len(columns) // threads)
        starts = range(columns.start, columns.stop, step)
        for some_rows, chunks in self.fetched(rows, columns):
            runs = ((row, first, min(first + step, columns.stop)) for row in some_rows for first in starts)
            parallel_for(partial(paste, chunks), runs, threads)
        return region

    def fetched(self, rows: range, columns: range) -> Iterator[tuple[range, Chunks]]:
        """The chunks of a block, some rows at a time: from a file, each run is read when it is needed."""
        yield rows, self.chunks

    def read_whole(self, width_px: int, height_px: int) -> Pixels:
        """The whole level in an image of another size, area-averaged; read in bands, to limit memory.

        Args:
            width_px, height_px: of the image; at most the level's own.
        """
        shrink = max(1, int(min(self.spec.width_px / width_px, self.spec.height_px / height_px)))
        if shrink == 1:
            reduced = self.read_region(Box(0, 0, self.spec.width_px, self.spec.height_px))
        else:
            band_px = max(1, self.spec.chunk_px // shrink) * shrink
            starts = range(0, self.spec.height_px, band_px)
            reduced = np.concatenate(
                [self._reduced_band(y, min(band_px, self.spec.height_px - y), shrink) for y in starts]
            )
        if reduced.shape[:2] == (height_px, width_px):
            return reduced
        return np.asarray(cv2.resize(reduced, (width_px, height_px), interpolation=cv2.INTER_AREA), np.uint8)

    def _reduced_band(self, y_px: int, height_px: int, shrink: int) -> Pixels:
        """Rows of the level, `shrink` times smaller; the last row and column average what there is."""
        part_px = max(1, MAX_BAND_BYTES // (3 * height_px * shrink)) * shrink
        starts = range(0, self.spec.width_px, part_px)
        return np.concatenate([self._reduced_part(x, y_px, part_px, height_px, shrink) for x in starts], axis=1)

    def _reduced_part(self, x_px: int, y_px: int, width_px: int, height_px: int, shrink: int) -> Pixels:
        part = self.read_region(Box(x_px, y_px, min(width_px, self.spec.width_px - x_px), height_px))
        padded = np.pad(part, ((0, -height_px % shrink), (0, -part.shape[1] % shrink), (0, 0)), mode="edge")
        size_wh = padded.shape[1] // shrink, padded.shape[0] // shrink
        return np.asarray(cv2.resize(padded, size_wh, interpolation=cv2.INTER_AREA), np.uint8)
