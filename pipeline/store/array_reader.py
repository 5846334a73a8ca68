"""Fast reads of one level: cached shard indexes, pread, chunks decoded straight into y,x,c."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import CorruptTileError, UnreadableError
from pipeline.store.codecs import ChunkError, decode_jpeg, decode_zstd
from pipeline.store.layout import FILL_VALUE, ArraySpec
from pipeline.store.metadata import read_json
from pipeline.store.shard import MISSING, ShardIndex, read_index

Pixels = NDArray[np.uint8]
"""uint8 of shape (height, width, 3), RGB."""


class ArrayReader:
    """Reads the chunks and regions of one level's array. Safe in threads and in forked workers."""

    def __init__(self, path: Path, spec: ArraySpec) -> None:
        self.path, self.spec = path, spec
        self._shards: dict[tuple[int, int], tuple[int, ShardIndex] | None] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> ArrayReader:
        """Open by the array's own `zarr.json`.

        Raises:
            UnreadableError: not there, or not an array of a slide store.
        """
        try:
            return cls(path, ArraySpec.from_zarr_json(read_json(path / "zarr.json")))
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: {error}. The store is damaged; delete it and ingest again.") from error

    def __del__(self) -> None:
        for shard in getattr(self, "_shards", {}).values():
            if shard is not None:
                os.close(shard[0])

    def chunk(self, row: int, column: int) -> bytes | None:
        """A chunk's bytes as stored; None for a sparse one (all white).

        Raises:
            IndexError: outside the grid.
            CorruptTileError: the shard is damaged.
        """
        spec = self.spec
        if not (0 <= row < spec.rows and 0 <= column < spec.columns):
            raise IndexError(f"chunk row {row}, column {column}: the level has {spec.rows} × {spec.columns}")
        n = spec.shard_chunks
        shard = self._shard(row // n, column // n)
        if shard is None:
            return None
        descriptor, index = shard
        offset, count = index[(row % n) * n + column % n]
        if offset == MISSING:
            return None
        data = os.pread(descriptor, int(count), int(offset))
        if len(data) != int(count):
            raise self._corrupt(row, column, f"{len(data)} of {count} bytes")
        return data

    def _shard(self, shard_row: int, shard_column: int) -> tuple[int, ShardIndex] | None:
        key = (shard_row, shard_column)
        with self._lock:
            if key not in self._shards:
                self._shards[key] = self._open_shard(*key)
            return self._shards[key]

    def _open_shard(self, shard_row: int, shard_column: int) -> tuple[int, ShardIndex] | None:
        path = self.path / self.spec.shard_key(shard_row, shard_column)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return descriptor, read_index(descriptor, self.spec.shard_chunks**2)
        except ValueError as error:
            os.close(descriptor)
            raise CorruptTileError(f"{path}: {error}. Delete the store and ingest the slide again.") from error

    def decoded_chunk(self, row: int, column: int) -> Pixels | None:
        """A chunk's pixels, uint8 (chunk_px, chunk_px, 3); None for a sparse one."""
        data = self.chunk(row, column)
        if data is None:
            return None
        try:
            is_jpeg = self.spec.codec == "imagecodecs_jpeg"
            return decode_jpeg(data) if is_jpeg else decode_zstd(data, self.spec.chunk_px)
        except ChunkError as error:
            raise self._corrupt(row, column, error) from error

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self.path}: chunk in row {row}, column {column}: {why}. "
            "The store is damaged; delete it and ingest the slide again."
        )

    def read_region(self, x_px: int, y_px: int, width_px: int, height_px: int) -> Pixels:
        """Pixels of the level, uint8 (height_px, width_px, 3); white outside it."""
        region = np.full((height_px, width_px, 3), FILL_VALUE, np.uint8)
        t = self.spec.chunk_px
        x1, y1 = min(x_px + width_px, self.spec.width_px), min(y_px + height_px, self.spec.height_px)
        for row in range(max(0, y_px) // t, -(-y1 // t)):
            for column in range(max(0, x_px) // t, -(-x1 // t)):
                chunk = self.decoded_chunk(row, column)
                if chunk is not None:
                    left, top = max(x_px, column * t), max(y_px, row * t)
                    right, bottom = min(x1, (column + 1) * t), min(y1, (row + 1) * t)
                    region[top - y_px : bottom - y_px, left - x_px : right - x_px] = chunk[
                        top - row * t : bottom - row * t, left - column * t : right - column * t
                    ]
        return region
