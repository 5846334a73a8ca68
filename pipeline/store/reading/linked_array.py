"""Reads of a level whose chunks are in the slide's file: the same streams as a full store has."""

from __future__ import annotations

import itertools
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from pipeline.codecs.dicom_items import fragments_joined
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.tile_streams import TileStreams
from pipeline.errors import CorruptTileError
from pipeline.store.format.inside import check_inside
from pipeline.store.format.layout import ArraySpec
from pipeline.store.format.link_shard import OWN_FILE, Records, read_own, read_records
from pipeline.store.links.source import OpenLink
from pipeline.store.reading.array_reader import MAX_READ_BYTES, ArrayReader, Identity

MAX_OPEN_RECORDS = 256
"""Shards in the whole process; each takes about 100 KB, before its store is verified up to 400 KB."""


@lru_cache(maxsize=MAX_OPEN_RECORDS)
def _open_records(path: str, real_store: str, num_chunks: int, sha256: str) -> Records:
    check_inside(path, real_store)
    return read_records(path, num_chunks, sha256)


class _Pointer(NamedTuple):
    """One record, in plain numbers; numpy's are slow to compare."""

    offset: int
    num_bytes: int
    crc32c: int
    file: int
    has_crc32c: int
    zero: int

    @property
    def end(self) -> int:
        return self.offset + self.num_bytes


class LinkedArrayReader(ArrayReader):
    """Reads the chunks and regions of a linked level. Safe in threads and in forked workers.

    Raises, besides what `ArrayReader` does:
        SourceGoneError, ChangedSourceError: the slide's file is not what it was.
    """

    def __init__(self, path: Path, spec: ArraySpec, link: OpenLink, identity: Identity | None = None) -> None:
        super().__init__(path, spec, identity)
        self._link = link
        self._streams = TileStreams(spec.tile_rule)
        assert spec.link is not None  # or it had no rule
        self._in_items = spec.link.in_items

    def __reduce__(self) -> tuple[Any, ...]:
        return (LinkedArrayReader, (self.path, self.spec, self._link, self.identity))

    def chunks(self, row: int, columns: range) -> list[bytes | None]:
        n = self.spec.shard_chunks
        streams: list[bytes | None] = []
        for shard_column in range(columns.start // n, (columns.stop - 1) // n + 1):
            first, last = max(columns.start, shard_column * n), min(columns.stop, (shard_column + 1) * n)
            shard = self._records(row // n, shard_column, row, first)
            if shard is None:
                streams += [None] * (last - first)
                continue
            at = row % n * n + first % n
            streams += self._linked([_Pointer(*one) for one in shard[at : at + last - first].tolist()], row, first)
        return streams

    def _records(self, shard_row: int, shard_column: int, row: int, column: int) -> Records | None:
        key = self.spec.shard_key(shard_row, shard_column)
        sha256 = self._link.shards.get(f"{self.path.name}/{key}")
        if sha256 is None:
            return None
        try:
            return _open_records(f"{self.path}/{key}", self._shards.real_store, self.spec.shard_chunks**2, sha256)
        except OSError as error:
            why = f"the shard that says where it is cannot be read ({error.strerror})"
            raise self._corrupt(row, column, why) from error
        except ValueError as error:
            raise self._corrupt(row, column, error) from error

    def coded_bytes(self) -> int:
        """Bytes of all chunks' streams, if all tiles begin alike: each is then longer than in the file by as much."""
        counts, first = 0, None
        num_chunks = 0
        for row, column in itertools.product(range(self.spec.shard_rows), range(self.spec.shard_columns)):
            n = self.spec.shard_chunks
            shard = self._records(row, column, row * n, column * n)
            if shard is not None:
                counts += int(shard["count"].sum())
                num_chunks += int(np.count_nonzero(shard["count"]))
                first = first or self._added_bytes(shard, row * n, column * n)
        return counts + num_chunks * (first or 0)

    def _added_bytes(self, shard: Records, row: int, column: int) -> int:
        """By how much the first chunk of a shard is longer than its tile in the file."""
        n, at = self.spec.shard_chunks, int(np.flatnonzero(shard["count"])[0])
        chunk = self.chunk(row + at // n, column + at % n)
        return len(chunk or b"") - int(shard["count"][at])

    def _linked(self, pointers: list[_Pointer], row: int, column: int) -> list[bytes | None]:
        """Chunks of neighbouring pointers, in one read if they are adjacent in the file."""
        stored = [pointer for pointer in pointers if pointer.num_bytes]
        if not stored:
            return [None] * len(pointers)
        start, end = min(stored).offset, max(pointer.end for pointer in stored)
        is_one_read = end - start == sum(pointer.num_bytes for pointer in stored) <= MAX_READ_BYTES
        if len(pointers) > 1 and not (is_one_read and len({pointer.file for pointer in stored}) == 1):
            return [self._linked([pointer], row, column + i)[0] for i, pointer in enumerate(pointers)]
        data = self._read_at(stored[0].file, start, end - start, row, column)
        return [
            self._complete(data, pointer.offset - start, pointer, row, column + i) if pointer.num_bytes else None
            for i, pointer in enumerate(pointers)
        ]

    def _read_at(self, file: int, start: int, count: int, row: int, column: int) -> bytes:
        n, files = self.spec.shard_chunks, self._link.source.files
        if count > MAX_READ_BYTES:
            raise self._corrupt(row, column, f"{count} bytes; at most {MAX_READ_BYTES} are read")
        if file == OWN_FILE:
            try:
                data = read_own(f"{self.path}/{self.spec.shard_key(row // n, column // n)}", start, count)
            except OSError as error:
                raise self._corrupt(row, column, error.strerror) from error
        elif file < len(files):
            if start + count > files[file].bytes:
                raise self._corrupt(row, column, f"it ends at byte {start + count} of {files[file].bytes}")
            data = self._link.source.read(file, start, count)
        else:
            raise self._corrupt(row, column, f"it is in file {file} of {len(files)}")
        if len(data) != count:
            raise self._corrupt(row, column, f"{len(data)} of {count} bytes")
        return data

    def _complete(self, data: bytes, start: int, pointer: _Pointer, row: int, column: int) -> bytes:
        """One chunk from a tile's own bytes, compared with the CRC-32C that it had."""
        end = start + pointer.num_bytes
        try:
            stream = data[start:end] if pointer.file == OWN_FILE else self._stream_of(data, start, end)
        except StreamError as error:
            raise self._corrupt(row, column, error) from error
        if pointer.has_crc32c and google_crc32c.value(stream) != pointer.crc32c:
            raise self._corrupt(row, column, f"the checksum of its {len(stream)} bytes does not match")
        return stream

    def _stream_of(self, data: bytes, start: int, end: int) -> bytes:
        view = memoryview(data)
        if not self._in_items:
            return b"".join(self._streams.stream(data, view, start, end))
        frame = fragments_joined(view[start:end])
        return b"".join(self._streams.stream(frame, frame, 0, len(frame)))

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self.path}: chunk in row {row}, column {column}, in the slide's file: {why}. The file or the store is "
            "damaged: restore the file, or ingest the slide again."
        )
