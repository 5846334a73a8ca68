"""One shard file of zarr v3: encoded chunks one after the other, then their index.

The index holds, in C order, (offset, byte count) of every chunk as little-endian uint64; a missing chunk is
2^64-1 twice. A little-endian CRC-32C of the index ends the file. (zarr v3, sharding_indexed codec.)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

_MISSING = 2**64 - 1
MISSING = np.uint64(_MISSING)

ShardIndex = NDArray[np.uint64]
"""uint64 of shape (number of chunks, 2): offset, byte count."""


@dataclass(frozen=True)
class FileSum:
    """Length of a file and the CRC-32C of all of it."""

    bytes: int
    crc32c: int


def write_shard(path: Path, chunks: Sequence[Sequence[bytes | memoryview]]) -> FileSum | None:
    """Write all chunks of a shard, in C order, whole or not at all; the folder must be there.

    A shard without any chunk is not written (None): readers take the fill value.

    Args:
        chunks: per chunk the buffers that make it up; none for a chunk that is left out.
    """
    index: list[int] = []
    position = 0
    for chunk in chunks:
        if not chunk:
            index += (_MISSING, _MISSING)
            continue
        count = sum(map(len, chunk))
        index += (position, count)
        position += count
    if not position:
        return None
    packed = np.asarray(index, dtype="<u8").tobytes()
    end = packed + google_crc32c.value(packed).to_bytes(4, "little")
    content = b"".join([*(buffer for chunk in chunks for buffer in chunk), end])
    aside = path.with_name(f".{path.name}.partial")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        _write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    aside.replace(path)
    return FileSum(len(content), google_crc32c.value(content))


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sum_file(path: Path) -> FileSum:
    """Length and CRC-32C of a file, read in pieces."""
    crc = length = 0
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(4 * 2**20):
            crc, length = google_crc32c.extend(crc, piece), length + len(piece)
    return FileSum(length, crc)


def index_bytes(num_chunks: int) -> int:
    """Length of the index with its checksum."""
    return 16 * num_chunks + 4


def read_index(descriptor: int, num_chunks: int) -> ShardIndex:
    """Read and check a shard's index.

    Raises:
        ValueError: cut short, its checksum does not match, or a chunk lies outside the file.
    """
    size = os.fstat(descriptor).st_size
    length = index_bytes(num_chunks)
    raw = os.pread(descriptor, length, max(0, size - length))
    if len(raw) != length or google_crc32c.value(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise ValueError(f"its index of {num_chunks} chunks is damaged (file of {size} bytes)")
    index = np.frombuffer(raw[:-4], dtype="<u8").reshape(num_chunks, 2)
    there = index[index[:, 0] != MISSING]
    if (there > size - length).any() or (there.sum(1) > size - length).any():
        raise ValueError(f"its index names bytes outside its {size - length} bytes of chunks")
    return index
