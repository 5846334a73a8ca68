"""Small arrays of a store that are not the slide's pixels: tissue, predictions, quality scores, features.

Plain chunked zarr v3 arrays with core codecs, so that every zarr program can read them. Read and written without the
zarr library: its import takes longer than all the rest, it does not fsync, and it trusts an array's own metadata.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.files import write_bytes_atomic
from pipeline.places.byte_source import read_file, read_json_at, results_of
from pipeline.places.object_path import StorePath, below
from pipeline.store.format.chunks import decompress_zstd, encode_zstd
from pipeline.store.format.inside import check_inside, real_store_of
from pipeline.store.format.layout import CHECKSUM_CODEC, ZSTD_LEVEL
from pipeline.store.format.metadata import write_json
from pipeline.store.format.shard import with_checksum, without_checksum
from training.foundation.errors import UnreadableError

MAX_CHUNK = 2048
"""Cells along a side of the chunks that are written."""
MAX_ARRAY_BYTES = 2**31
MAX_CHUNKS = 2**16
MAX_META_BYTES = 2**20
_DTYPES = ("uint8", "int32", "float16", "float32")
Position = tuple[int, ...]
"""Position of a chunk in the grid of chunks, one number per axis."""


@dataclass(frozen=True)
class PlainArray:
    """An array's metadata, and its chunks on disk."""

    path: StorePath
    real_store: str
    """The store's folder, resolved: chunks are below it."""
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: float
    has_checksums: bool
    """Whether each chunk carries its CRC-32C; those of contract versions 1 and 2 do not."""

    @classmethod
    def open(cls, store: StorePath, name: str) -> PlainArray:
        """Open the array `name`, a path below the store.

        Raises:
            UnreadableError: missing, leads out of the store, or not an array as we write them.
        """
        path = store / name
        meta, real_store = path / "zarr.json", real_store_of(store)
        check_inside(meta, real_store)
        try:
            return _parse(path, real_store, read_json_at(meta, max_bytes=MAX_META_BYTES))
        except _DAMAGE as error:
            raise UnreadableError(f"{path}: cannot be read ({type(error).__name__}: {error}).") from error

    def positions(self) -> Iterator[Position]:
        """All chunks of the grid, in C order."""
        sides = zip(self.shape, self.chunk_shape, strict=True)
        return itertools.product(*(range(-(-n // side)) for n, side in sides))

    def chunk_path(self, position: Position) -> StorePath:
        return self.path / "c" / "/".join(map(str, position))

    def stored_chunk(self, position: Position) -> bytes | None:
        """A chunk's zstd stream, its checksum verified and removed; None if there is no file.

        Raises:
            UnreadableError: not a regular file inside the store, too long, or its checksum does not match.
        """
        path = self.chunk_path(position)
        check_inside(path, self.real_store)
        # zstd adds less than this to data that it cannot compress.
        num_bytes = self._chunk_bytes()
        try:
            stored = read_file(path, max_bytes=num_bytes + num_bytes // 128 + 1024)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from error
        if not self.has_checksums:
            return stored
        stream = without_checksum(stored, 0, len(stored))
        if stream is None:
            raise UnreadableError(f"{path}: the checksum of its {len(stored)} bytes does not match.")
        return stream

    def chunk(self, position: Position) -> NDArray[Any] | None:
        """A chunk's values, full-sized even at the array's edges; None if there is no file.

        Raises:
            UnreadableError: damaged.
        """
        stream = self.stored_chunk(position)
        if stream is None:
            return None
        try:
            values = np.frombuffer(decompress_zstd(stream, self._chunk_bytes()), self.dtype)
        except ValueError as error:
            raise UnreadableError(f"{self.chunk_path(position)}: {error}.") from error
        return values.reshape(self.chunk_shape)

    def read(self) -> NDArray[Any]:
        """All values; the fill value where a chunk is missing."""
        values = np.full(self.shape, self.fill_value, self.dtype.newbyteorder("="))
        calls = (partial(self.chunk, position) for position in self.positions())
        for position, chunk in zip(self.positions(), results_of(self.path, calls), strict=True):
            if chunk is not None:
                part = values[_box(position, self.chunk_shape)]
                part[...] = chunk[tuple(slice(n) for n in part.shape)]
        return values

    def _chunk_bytes(self) -> int:
        return math.prod(self.chunk_shape) * self.dtype.itemsize


_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


def _box(position: Position, chunk_shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(i * side, (i + 1) * side) for i, side in zip(position, chunk_shape, strict=True))


def _parse(path: StorePath, real_store: str, meta: Any) -> PlainArray:
    """Raises any of `_DAMAGE` for an array that gemslide did not write."""
    _check_kind(meta)
    if meta["data_type"] not in _DTYPES:
        raise ValueError(f"values of type {meta['data_type']!r:.50}; expected one of {', '.join(_DTYPES)}")
    dtype = np.dtype(meta["data_type"]).newbyteorder("<")
    shape, chunk_shape = tuple(meta["shape"]), tuple(meta["chunk_grid"]["configuration"]["chunk_shape"])
    _check_sizes(shape, chunk_shape, dtype.itemsize)
    has_checksums = bool(meta["codecs"][-1:] == [CHECKSUM_CODEC])
    _check_codecs(meta["codecs"][: -1 if has_checksums else None], dtype)
    fill_value = _parse_fill(meta["fill_value"], dtype)
    return PlainArray(path, real_store, shape, chunk_shape, dtype, fill_value, has_checksums)


def _check_kind(meta: Any) -> None:
    grid, keys = meta["chunk_grid"], meta["chunk_key_encoding"]
    kinds = meta["node_type"], meta["zarr_format"], grid["name"], keys["name"], keys["configuration"]["separator"]
    if kinds != ("array", 3, "regular", "default", "/") or meta.get("storage_transformers"):
        raise ValueError(f"not a plain zarr v3 array, but {kinds!r:.200}")


def _check_sizes(shape: tuple[Any, ...], chunk_shape: tuple[Any, ...], itemsize: int) -> None:
    description = f"shape {shape!s:.100} in chunks of {chunk_shape!s:.100}"
    if not 2 <= len(shape) == len(chunk_shape) <= 3:
        raise ValueError(description)
    for n, side in zip(shape, chunk_shape, strict=True):
        if type(n) is not int or type(side) is not int or not 1 <= side <= n:
            raise ValueError(description)
    num_chunks = math.prod(-(-n // side) for n, side in zip(shape, chunk_shape, strict=True))
    if math.prod(shape) * itemsize > MAX_ARRAY_BYTES or num_chunks > MAX_CHUNKS:
        raise ValueError(f"{description} is too large to read")


def _check_codecs(codecs: Any, dtype: np.dtype[Any]) -> None:
    as_bytes, zstd = codecs
    if as_bytes["name"] != "bytes" or zstd["name"] != "zstd":
        raise ValueError(f"its codecs are {codecs!r:.200}")
    if dtype.itemsize > 1 and as_bytes["configuration"]["endian"] != "little":
        raise ValueError("its bytes are not little-endian")


def _parse_fill(value: Any, dtype: np.dtype[Any]) -> float:
    if dtype.kind == "f" and value == "NaN":
        return math.nan
    if type(value) not in (int, float) or not 0 <= value <= 255:
        raise ValueError(f"fill value {value!r:.50}")
    return float(value)


def array_names(store: StorePath, group: str) -> list[str]:
    """The arrays below one of a store's groups, as paths below the store; none if the group does not exist.

    Raises:
        UnreadableError: the metadata of one of them cannot be read.
    """
    names = []
    metas: list[StorePath] = [*(store / group).rglob("zarr.json")]
    for meta in sorted(metas, key=str):
        path = below(meta, store).parent
        if any(part.startswith(".") for part in path.parts):
            continue  # still being written, or left by a killed run
        try:
            content = read_json_at(meta, max_bytes=MAX_META_BYTES)
            if content["node_type"] == "array":
                names.append(str(path))
        except _DAMAGE as error:
            raise UnreadableError(f"{meta}: cannot be read ({type(error).__name__}: {error}).") from error
    return names


def read_array(store: StorePath, name: str) -> NDArray[Any]:
    """All values of a small array of a store.

    Args:
        name: its path below the store.

    Raises:
        UnreadableError: missing, or damaged.
    """
    return PlainArray.open(store, name).read()


def write_array(
    path: Path,
    values: NDArray[Any],
    axes: Sequence[str],
    *,
    fill_value: float,
    chunk_shape: tuple[int, ...] | None = None,
) -> None:
    """Write one dataset, compressed with zstd, each chunk with its CRC-32C.

    Args:
        axes: the name of each axis.
        chunk_shape: at most the array's own; None: all channels of an axis `c`, and `MAX_CHUNK` cells along others.
    """
    usual = tuple(n if axis == "c" else min(n, MAX_CHUNK) for n, axis in zip(values.shape, axes, strict=True))
    chunk = chunk_shape or usual
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "zarr.json", _to_zarr_json(values, chunk, axes, fill_value))
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    for position in itertools.product(*(range(-(-n // side)) for n, side in zip(values.shape, chunk, strict=True))):
        part = little[_box(position, chunk)]
        beyond = [(0, side - n) for n, side in zip(part.shape, chunk, strict=True)]
        full = np.pad(part, beyond, constant_values=fill_value)
        stored = b"".join(with_checksum([encode_zstd(full, with_checksum=False)]))
        write_bytes_atomic(path / "c" / "/".join(map(str, position)), stored)


def _to_zarr_json(
    values: NDArray[Any], chunk: tuple[int, ...], axes: Sequence[str], fill_value: float
) -> dict[str, Any]:
    is_float = np.issubdtype(values.dtype, np.floating)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(values.shape),
        "data_type": values.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN" if np.isnan(fill_value) else float(fill_value) if is_float else int(fill_value),
        "dimension_names": list(axes),
        "attributes": {},
        "storage_transformers": [],
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": False}},
            CHECKSUM_CODEC,
        ],
    }
