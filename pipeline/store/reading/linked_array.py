"""Reads of a level whose chunks are in the slide's file: the same streams as a full store has."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import google_crc32c

from pipeline.codecs.dicom_items import fragments_joined
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.tile_streams import TileStreams
from pipeline.errors import CorruptTileError
from pipeline.store.format.inside import INGEST_AGAIN, check_inside
from pipeline.store.format.layout import ArraySpec
from pipeline.store.format.link_shard import OWN_FILE, Records, read_own, read_records
from pipeline.store.links.source import OpenLink
from pipeline.store.reading.array_reader import MAX_READ_BYTES, ArrayReader, Identity
from training.foundation.errors import UnreadableError

MAX_OPEN_RECORDS = 256
"""Shards in the whole process; each takes about 100 KB."""


@lru_cache(maxsize=MAX_OPEN_RECORDS)
def _open_records(path: str, num_chunks: int, sha256: str) -> Records:
    return read_records(path, num_chunks, sha256)


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
            at = row % n * n + first % n
            streams += (
                [None] * (last - first) if shard is None else self._linked(shard[at : at + last - first], row, first)
            )
        return streams

    def _records(self, shard_row: int, shard_column: int, row: int, column: int) -> Records | None:
        key = self.spec.shard_key(shard_row, shard_column)
        sha256 = self._link.shards.get(f"{self.path.name}/{key}")
        if sha256 is None:
            return None
        path = self._own_path(key)
        try:
            return _open_records(path, self.spec.shard_chunks**2, sha256)
        except OSError as error:
            raise self._corrupt(
                row, column, f"the shard that says where it is cannot be read ({error.strerror})"
            ) from error
        except ValueError as error:
            raise self._corrupt(row, column, error) from error

    def _own_path(self, key: str) -> str:
        path = f"{self.path}/{key}"
        check_inside(path, self._shards.real_store)
        return path

    def _linked(self, records: Records, row: int, column: int) -> list[bytes | None]:
        """Chunks of neighbouring records, in one read if they are adjacent in the file."""
        counts, offsets, files = (records[name].tolist() for name in ("count", "offset", "file"))
        stored = [(offset, offset + count) for offset, count in zip(offsets, counts, strict=True) if count]
        if not stored:
            return [None] * len(counts)
        start, end = min(stored)[0], max(stored)[1]
        is_one_read = end - start == sum(counts) <= MAX_READ_BYTES and len(set(files)) == 1
        if len(counts) > 1 and not is_one_read:
            return [self._linked(records[i : i + 1], row, column + i)[0] for i in range(len(counts))]
        if end - start > MAX_READ_BYTES:
            raise self._corrupt(row, column, f"{end - start} bytes; at most {MAX_READ_BYTES} are read")
        if files[0] == OWN_FILE:
            data = self._read_own(row, column, start, end - start)
        elif files[0] < len(self._link.source.files):
            data = self._link.source.read(files[0], start, end - start)
        else:
            raise self._corrupt(row, column, f"it is in file {files[0]} of {len(self._link.source.files)}")
        if len(data) != end - start:
            raise self._corrupt(row, column, f"{len(data)} of {end - start} bytes")
        return [
            self._complete(data, offset - start, count, record, row, column + i) if count else None
            for i, (offset, count, record) in enumerate(zip(offsets, counts, records, strict=True))
        ]

    def _read_own(self, row: int, column: int, offset: int, count: int) -> bytes:
        n = self.spec.shard_chunks
        try:
            return read_own(self._own_path(self.spec.shard_key(row // n, column // n)), offset, count)
        except OSError as error:
            raise self._corrupt(row, column, error.strerror) from error

    def _complete(self, data: bytes, start: int, count: int, record: Any, row: int, column: int) -> bytes:
        """One chunk from a tile's own bytes, compared with the CRC-32C that it had."""
        try:
            stream = data[start : start + count] if record["file"] == OWN_FILE else self._stream_of(data, start, count)
        except StreamError as error:
            raise self._corrupt(row, column, error) from error
        if record["has_crc32c"] and google_crc32c.value(stream) != record["crc32c"]:
            raise self._corrupt(row, column, f"the checksum of its {len(stream)} bytes does not match")
        return stream

    def _stream_of(self, data: bytes, start: int, count: int) -> bytes:
        view = memoryview(data)
        if not self._in_items:
            return b"".join(self._streams.stream(data, view, start, start + count))
        frame = fragments_joined(view[start : start + count])
        return b"".join(self._streams.stream(frame, frame, 0, len(frame)))

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self.path}: chunk in row {row}, column {column}, in the slide's file: {why}. The file or the store is "
            "damaged: restore the file, or ingest the slide again."
        )


def open_array(path: Path, link: OpenLink | None) -> ArrayReader:
    """A level's array, whether its chunks are in the store or in the slide's file.

    Raises:
        UnreadableError: as `ArrayReader.open`; or the store does not say that it is linked.
    """
    array = ArrayReader.open(path)
    if array.spec.link is None:
        return array
    if link is None:
        raise UnreadableError(f"{path}: points at a slide's file, and the store is not a linked one. {INGEST_AGAIN}")
    return LinkedArrayReader(path, array.spec, link, array.identity)
