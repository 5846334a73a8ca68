"""One shard file of a level that points at the slide's file: where each of its chunks is.

Chunks that are not the slide's own (tiles that were repaired) come first, one after the other. Then follow the records
of all chunks in C order, 24 bytes each, little-endian: first byte (uint64), number of bytes (uint32; 0 for a white
chunk), CRC-32C of the chunk (uint32), number of the slide's file (uint16; 65535: this file), whether the CRC-32C is
known (uint16), zero (uint32). The CRC-32C is that of the chunk as a full store has it, not of the file's bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from pipeline.store.format.shard import FileChecksum
from training.foundation.reading import open_regular

RECORD = np.dtype(
    [("offset", "<u8"), ("count", "<u4"), ("crc32c", "<u4"), ("file", "<u2"), ("has_crc32c", "<u2"), ("zero", "<u4")]
)
OWN_FILE = 2**16 - 1
Records = NDArray[Any]
"""Of dtype `RECORD`, one for each chunk of a shard."""


def write_link_shard(path: Path, records: Records, own: Iterable[bytes]) -> tuple[FileChecksum, str]:
    """Write a shard of a store that is not published yet; the caller flushes it to disk. Returns its checksum, and the
    SHA-256 of its records.

    Args:
        own: the chunks that the records of `OWN_FILE` point at, in order.
    """
    packed = records.tobytes()
    content = b"".join(own) + packed
    path.write_bytes(content)
    return FileChecksum(len(content), google_crc32c.value(content)), hashlib.sha256(packed).hexdigest()


def read_records(path: Path | str, num_chunks: int, sha256: str) -> Records:
    """The records of a shard.

    Raises:
        OSError: missing, or cannot be read. ValueError: they are not those that were written.
    """
    length = num_chunks * RECORD.itemsize
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        packed = os.pread(descriptor, length, max(0, size - length))
    finally:
        os.close(descriptor)
    if hashlib.sha256(packed).hexdigest() != sha256:
        raise ValueError(f"its records of {num_chunks} chunks are not those that were written (file of {size} bytes)")
    return np.frombuffer(packed, RECORD)


def read_own(path: Path | str, offset: int, count: int) -> bytes:
    """A chunk that is in the shard itself. Raises OSError."""
    descriptor = open_regular(path)
    try:
        return os.pread(descriptor, count, offset)
    finally:
        os.close(descriptor)
