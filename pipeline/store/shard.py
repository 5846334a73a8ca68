"""One shard file of zarr v3: encoded chunks one after the other, then their index.

The index holds, in C order, (offset, byte count) of every chunk as little-endian uint64; a missing chunk is
2^64-1 twice. A little-endian CRC-32C of the index ends the file. (zarr v3, sharding_indexed codec.)
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

MISSING = np.uint64(2**64 - 1)

ShardIndex = NDArray[np.uint64]
"""uint64 of shape (number of chunks, 2): offset, byte count."""


def write_shard(path: Path, chunks: Iterable[bytes | None]) -> int:
    """Write all chunks of a shard, in C order; None leaves a chunk out. Returns bytes written.

    A shard without any chunk is not written: readers take the fill value.
    """
    index: list[tuple[int, int]] = []
    aside = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    position = 0
    with aside.open("wb") as stream:
        for chunk in chunks:
            if chunk is None:
                index.append((int(MISSING), int(MISSING)))
                continue
            stream.write(chunk)
            index.append((position, len(chunk)))
            position += len(chunk)
        if position:
            packed = np.asarray(index, dtype="<u8").tobytes()
            stream.write(packed + google_crc32c.value(packed).to_bytes(4, "little"))
            stream.flush()
            os.fsync(stream.fileno())
    if not position:
        aside.unlink()
        return 0
    aside.replace(path)
    return position


def index_bytes(num_chunks: int) -> int:
    """Length of the index with its checksum."""
    return 16 * num_chunks + 4


def read_index(descriptor: int, num_chunks: int) -> ShardIndex:
    """Read and check a shard's index.

    Raises:
        ValueError: cut short, or the checksum does not match.
    """
    size = os.fstat(descriptor).st_size
    length = index_bytes(num_chunks)
    raw = os.pread(descriptor, length, max(0, size - length))
    if len(raw) != length or google_crc32c.value(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise ValueError(f"its index of {num_chunks} chunks is damaged (file of {size} bytes)")
    return np.frombuffer(raw[:-4], dtype="<u8").reshape(num_chunks, 2)
