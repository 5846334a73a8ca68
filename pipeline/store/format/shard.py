"""One shard file of zarr v3: encoded chunks one after the other, then their index.

Each chunk's stream is followed by its CRC-32C, as zarr's codec `crc32c` writes it: four bytes, little-endian.

The index holds, in C order, (offset, byte count) of every chunk as little-endian uint64; a missing chunk is
2^64-1 twice. A little-endian CRC-32C of the index ends the file. (zarr v3, sharding_indexed codec.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Stream
from pipeline.places.byte_source import ByteSource, open_bytes
from pipeline.places.object_path import StorePath
from training.foundation.words.counts import counted

_MISSING = 2**64 - 1
_WRITE_BYTES = 64 * 2**10
_SUM_BYTES = 4 * 2**20
MISSING = np.uint64(_MISSING)
CHECKSUM_BYTES = 4

ShardIndex = NDArray[np.uint64]
"""uint64 of shape (number of chunks, 2): offset, byte count."""


@dataclass(frozen=True)
class FileChecksum:
    """Length of a file and the CRC-32C of all of it."""

    bytes: int
    crc32c: int


def write_shard(
    path: Path, chunks: Iterable[Sequence[bytes | memoryview]], *, with_checksums: bool = True
) -> FileChecksum | None:
    """Write all chunks of a shard, in C order, whole or not at all; the folder must exist.

    A shard without any chunk is not written (None): readers take the fill value.

    Args:
        chunks: per chunk the buffers that make it up; none for a chunk that is left out. Consumed as they are written.
        with_checksums: put each chunk's CRC-32C after it.
    """
    temporary = path.with_name(f".{path.name}.partial")
    with _Pieces(temporary) as out:
        index: list[int] = []
        for chunk in chunks:
            if chunk:
                index += (out.length, out.add(with_checksum(chunk) if with_checksums else chunk))
            else:
                index += (_MISSING, _MISSING)
        if not out.length:
            return None
        out.add(with_checksum([np.asarray(index, dtype="<u8").tobytes()]))
        out.finish()
    temporary.replace(path)
    return FileChecksum(out.length, out.crc32c)


def chunks_in_order(
    side: int, rows: range, columns: range, streams: Callable[[int, range], Sequence[Stream]]
) -> Iterator[Stream]:
    """All chunks of a shard in C order, as `write_shard` takes them, read a row at a time.

    Args:
        side: chunks along it.
        rows, columns: of the level's chunks that it covers.
        streams: of neighbouring chunks of one row; () for one that is left out.
    """
    beside: list[Stream] = [()] * (side - len(columns))
    for row in rows:
        yield from streams(row, columns)
        yield from beside
    yield from [()] * (side * (side - len(rows)))


def with_checksum(buffers: Sequence[bytes | memoryview]) -> tuple[bytes, bytes]:
    """The buffers joined, and their CRC-32C: four bytes, little-endian."""
    data = b"".join(buffers)  # the checksum library accepts only bytes
    return data, google_crc32c.value(data).to_bytes(CHECKSUM_BYTES, "little")


def without_checksum(stored: bytes, start: int, end: int) -> bytes | None:
    """Bytes before the CRC-32C in a part of `stored`, in one copy; None if the checksum does not match."""
    data = stored[start : max(start, end - CHECKSUM_BYTES)]
    is_whole = google_crc32c.value(data).to_bytes(CHECKSUM_BYTES, "little") == stored[start + len(data) : end]
    return data if is_whole else None


class _Pieces:
    """Collects buffers and writes them in pieces that stay in the processor's cache from creation to writing.

    Linux allocates its own cache in pieces as large as the write, and large ones are costly: 8 MiB at a time
    take up to ten times as long in a virtual machine. The file is created with the first piece.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor = path, -1
        self._waiting: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self.length = 0
        self.crc32c = 0

    def add(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Append buffers; returns their length."""
        count = sum(map(len, buffers))
        self._waiting += buffers
        self._waiting_bytes += count
        self.length += count
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()
        return count

    def finish(self) -> None:
        """Write what is waiting, and make sure that all of it is on disk."""
        self._write()
        os.fsync(self._descriptor)

    def _write(self) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        content = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        self.crc32c = google_crc32c.extend(self.crc32c, content)
        view, at = memoryview(content), 0
        while at < len(content):
            at += os.write(self._descriptor, view[at : at + _WRITE_BYTES])

    def __enter__(self) -> _Pieces:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def sum_file(path: StorePath) -> FileChecksum:
    """Length and CRC-32C of a file, read in pieces."""
    source, crc, length = open_bytes(path), 0, 0
    while piece := source.read(length, _SUM_BYTES):
        crc, length = google_crc32c.extend(crc, piece), length + len(piece)
    return FileChecksum(length, crc)


def index_bytes(num_chunks: int) -> int:
    """Length of the index with its checksum."""
    return 16 * num_chunks + CHECKSUM_BYTES


def read_index(shard: ByteSource, num_chunks: int, max_chunk_bytes: int) -> ShardIndex:
    """Read and check a shard's index.

    Raises:
        ValueError: truncated, its checksum does not match, or a chunk is outside the file or too long.
    """
    size, length = shard.num_bytes, index_bytes(num_chunks)
    raw = shard.read(max(0, size - length), length)
    packed = without_checksum(raw, 0, length)
    if packed is None:
        raise ValueError(f"its index of {counted(num_chunks, 'chunk')} is damaged (file of {size} bytes)")
    index = np.frombuffer(packed, dtype="<u8").reshape(num_chunks, 2)
    present = index[index[:, 0] != MISSING]
    if (present > size - length).any() or (present.sum(1) > size - length).any():
        raise ValueError(f"its index names bytes outside its {size - length} bytes of chunks")
    if (present[:, 1] > max_chunk_bytes).any():
        raise ValueError(f"its index names a chunk of {present[:, 1].max()} bytes; at most {max_chunk_bytes} are read")
    return index


def is_as_written(index: ShardIndex, size: int) -> bool:
    """Whether a shard's chunks follow each other as `write_shard` wrote them, with no byte left out.

    An index that points elsewhere can have a valid checksum.

    Args:
        size: of the file.
    """
    present = index[index[:, 0] != MISSING]
    ends = present[:, 1].cumsum()
    return bool((present.sum(1) == ends).all()) and int(ends[-1:].sum()) == size - index_bytes(len(index))
