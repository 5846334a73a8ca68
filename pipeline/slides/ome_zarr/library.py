"""A zarr folder read through zarr: every call to it, each guarded separately.

Everything here raises `DamagedFileError` if zarr cannot read the folder, and `UnreadableError` if the disk or the
network fails.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.errors import ZarrUserWarning

from pipeline.slides.common.damage import DamagedFileError, library_errors
from pipeline.slides.common.reading import disk_errors

_ZARR_ERRORS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, struct.error, zlib.error,
    EOFError, OSError, RuntimeError, MemoryError,
)  # fmt: skip
"""Exceptions that zarr and its codecs raise on folders with false claims."""

_HIDDEN_IN_V2 = {".zarray", ".zattrs", ".zgroup", ".zmetadata"}
_OF_DESKTOPS = {"Thumbs.db", "desktop.ini"}


def is_of_zarr(file: Path) -> bool:
    """Whether a file belongs to its zarr folder, and was not left there by a computer that showed it (.DS_Store)."""
    return file.name in _HIDDEN_IN_V2 or not (file.name.startswith(".") or file.name in _OF_DESKTOPS)


@contextmanager
def _guarded(name: str) -> Iterator[None]:
    with library_errors(_ZARR_ERRORS), disk_errors(name):
        yield


@dataclass(frozen=True)
class ZarrArray:
    """One array, not yet checked."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: int
    """Of every pixel in a chunk that is not stored."""
    has_plain_bytes: bool
    """Whether chunks are stored uncompressed and without a checksum, so that lost bytes read as zeros."""
    is_sharded: bool
    """Whether one object holds several chunks."""
    _array: zarr.Array[Any]
    _folder: Path
    _name: str

    def is_stored(self) -> NDArray[np.bool_]:
        """Whether each chunk has an object of its own, by its position along each axis; of shards, which have not."""
        grid = tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))
        if self.is_sharded:
            return np.ones(grid, bool)
        with _guarded(self._name):
            keys = [self._array.metadata.encode_chunk_key(at) for at in np.ndindex(grid)]
        with disk_errors(self._name):
            return np.array([(self._folder / key).is_file() for key in keys], bool).reshape(grid)

    def read(self, index: tuple[slice | int, ...]) -> NDArray[Any]:
        """A part of the array."""
        with _guarded(self._name):
            return np.asarray(self._array[index])


class ZarrFolder:
    """An open group: attributes and arrays by their path in it, "" for the group itself."""

    def __init__(self, path: Path) -> None:
        self._path, self._name = path, path.name
        with _guarded(self._name):
            self._root = zarr.open_group(path, mode="r", use_consolidated=False)

    def attributes(self, path: str = "") -> dict[str, Any]:
        with _guarded(self._name):
            return dict(self._root[path].attrs if path else self._root.attrs)

    def names(self, path: str = "") -> list[str]:
        """Names of a group's direct members; files that are none are skipped without zarr's warning."""
        with _guarded(self._name), warnings.catch_warnings(action="ignore", category=ZarrUserWarning):
            return list(self._root[path] if path else self._root)  # type: ignore[arg-type]

    def array(self, path: str) -> ZarrArray:
        with _guarded(self._name):
            array = self._root[path]
        if not isinstance(array, zarr.Array):
            raise DamagedFileError(f"{path} is not an array")
        with _guarded(self._name):
            fill_value = array.fill_value
            return ZarrArray(
                array.shape, array.chunks, array.dtype,
                fill_value=int(fill_value) if isinstance(fill_value, int | np.integer) else 0,
                has_plain_bytes=not array.compressors and not array.filters,
                is_sharded=array.shards is not None,
                _array=array, _folder=self._path / array.path, _name=self._name,
            )  # fmt: skip

    def close(self) -> None:
        self._root.store.close()
