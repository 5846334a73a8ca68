"""HDF5 files of other programs: written whole, and read as untrusted input. The only file that imports h5py."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadManifestError
from pipeline.export.common.target import new_file
from pipeline.files import explain_unwritable
from pipeline.store.format.plain_array import MAX_ARRAY_BYTES
from pipeline.store.layers.feature_checks import FeatureValues, to_float16
from training.foundation.errors import DecompressionBombError, EmptyTableError, UnreadableError

MAX_CHUNK_BYTES = 2**28
MAX_CHUNKS = 2**22
"""Of a data set. TRIDENT writes one for each tile."""
MAX_GROWTH = 1100
"""Bytes that one stored byte can stand for; gzip reaches 1,032."""
MAX_TEXT = 1000
_BLOCK_BYTES = 2**26
"""Bytes read at a time."""
_DAMAGE = (OSError, LookupError, ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError)


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """A new file that takes its name only when the block ends without an error. Equal content makes equal bytes.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    with new_file(path) as stream, h5py.File(stream, "w") as file:
        yield file


def read_parts(
    body: bytes,
    *,
    path: str,
    folder: str,
    arrays: tuple[str, str],
    numbers: Mapping[str, str],
    texts: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Read another program's file: `foreign.read_foreign` runs this in a process of its own.

    Only the file's own data sets are read: no links, no other files. Features and coordinates are left in `folder` as
    `values.npy` and `coordinates.npy`.

    Args:
        body: the file's name, as it was given.
        arrays: names of features and coordinates.
        numbers, texts: what has each attribute: a data set, or "/" for the file itself.

    Returns:
        One part, {`numbers`, `texts`}; None for attributes that are not stated.

    Raises:
        UnreadableError: not HDF5, damaged, or what is read is not what it must be.
        DecompressionBombError: it declares more than can be read. EmptyTableError: no features.
        ImplausibleOutputError: a value is not finite, or too large for half precision.
        BadManifestError: coordinates of another number of tiles. DiskFullError: no space in the folder.
    """
    name = os.fsdecode(body)
    try:
        if not h5py.is_hdf5(path):
            raise UnreadableError(f"{name}: is not an HDF5 file.")
        with h5py.File(path, "r", locking=False) as opened:
            file = _ForeignFile(name, opened)
            values_nd = file.features(arrays[0])
            xy_n2 = file.coordinates(arrays[1], len(values_nd))
            stated = {
                "numbers": {attribute: file.number(attribute, of=owner) for attribute, owner in numbers.items()},
                "texts": {attribute: file.text(attribute, of=owner) for attribute, owner in texts.items()},
            }
    except _DAMAGE as error:
        raise UnreadableError(f"{name}: cannot be read as HDF5 ({type(error).__name__}: {error!s:.200}).") from error
    with explain_unwritable(Path(folder)):
        np.save(f"{folder}/values.npy", values_nd)
        np.save(f"{folder}/coordinates.npy", xy_n2)
    return [stated]


class _ForeignFile:
    """An open file of another program."""

    def __init__(self, path: str, file: h5py.File) -> None:
        self.path, self._file = path, file

    def features(self, name: str) -> FeatureValues:
        """A data set of shape (tiles, features) or (1, tiles, features), read in pieces, in half precision.

        Raises:
            ImplausibleOutputError: a value is not finite, or too large for half precision.
        """
        dataset = self._dataset(name, "f")
        num_tiles, dims = _matrix_shape(dataset.shape)
        if not num_tiles * dims:
            raise EmptyTableError(f"{self.path}: `{name}` has the shape {dataset.shape}, so there are no features.")
        if num_tiles * dims * 2 > MAX_ARRAY_BYTES:
            raise DecompressionBombError(
                f"{self.path}: `{name}` declares {num_tiles:,} tiles with {dims:,} features; at most "
                f"{MAX_ARRAY_BYTES // 2:,} values are read."
            )
        values_nd = np.empty((num_tiles, dims), np.float16)
        chunk_tiles = dataset.chunks[-2] if dataset.chunks else 1
        step = max(_BLOCK_BYTES // (dims * dataset.dtype.itemsize) // chunk_tiles, 1) * chunk_tiles
        for first in range(0, num_tiles, step):
            block = dataset[(..., slice(first, first + step), slice(None))].reshape(-1, dims)
            values_nd[first : first + step] = to_float16(block, self.path, first_tile=first)
        return values_nd

    def coordinates(self, name: str, num_tiles: int) -> NDArray[np.float64]:
        """A data set of shape (tiles, 2) or (1, tiles, 2), as float64 (tiles, 2), finite.

        Raises:
            BadManifestError: not as many as tiles.
        """
        dataset = self._dataset(name, "iuf")
        shape = _matrix_shape(dataset.shape)
        if shape != (num_tiles, 2):
            raise BadManifestError(
                f"{self.path}: `{name}` has the shape {dataset.shape}, but there are features of {num_tiles:,} tiles; "
                f"({num_tiles}, 2) is expected. Features and coordinates of different runs do not belong together."
            )
        xy_n2: NDArray[np.float64] = dataset[...].reshape(-1, 2).astype(np.float64)
        bad = ~np.isfinite(xy_n2).all(1)
        if bad.any():
            tile = int(bad.argmax())
            raise BadManifestError(f"{self.path}: `{name}` of tile {tile} is {xy_n2[tile].tolist()}, not a position.")
        return xy_n2

    def number(self, name: str, *, of: str = "/") -> float | None:
        """An attribute that is one number; None if it is not stated.

        Args:
            of: a data set that was read before, or the file itself.
        """
        attributes = self._file[of].attrs
        if name not in attributes:
            return None
        attribute = attributes.get_id(name)
        if attribute.shape not in ((), (1,)) or attribute.dtype.kind not in "iuf":
            raise UnreadableError(
                f"{self.path}: the attribute `{name}` is of type {attribute.dtype} and shape {attribute.shape}, not a "
                "number."
            )
        number = float(np.asarray(attributes[name]).reshape(-1)[0])
        if not math.isfinite(number):
            raise UnreadableError(f"{self.path}: the attribute `{name}` is {number}.")
        return number

    def text(self, name: str, *, of: str = "/") -> str | None:
        """An attribute that is one text; None if it is not stated.

        Args:
            of: a data set that was read before, or the file itself.
        """
        attributes = self._file[of].attrs
        if name not in attributes:
            return None
        attribute = attributes.get_id(name)
        if attribute.shape != () or h5py.check_string_dtype(attribute.dtype) is None:
            raise UnreadableError(f"{self.path}: the attribute `{name}` is not a text.")
        value = attributes[name]
        return (value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value))[:MAX_TEXT]

    def _dataset(self, name: str, kinds: str) -> h5py.Dataset:
        """A data set stored in the file itself, of numbers, and no larger than can be read."""
        link = self._file.get(name, getlink=True)
        if link is None:
            raise UnreadableError(f"{self.path}: has no data set `{name}`. Check which program wrote it (--from).")
        if not isinstance(link, h5py.HardLink):
            raise UnreadableError(f"{self.path}: `{name}` is a link to something else, which is not followed.")
        dataset = self._file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
            raise UnreadableError(f"{self.path}: `{name}` is not a data set stored in the file itself.")
        if dataset.dtype.kind not in kinds or dataset.dtype.itemsize > 8:
            raise UnreadableError(
                f"{self.path}: `{name}` has values of type {dataset.dtype!s:.80}; "
                f"{'floating-point numbers' if kinds == 'f' else 'numbers'} of at most 64 bits are expected."
            )
        if dataset.shape is None or _matrix_shape(dataset.shape) is None:
            raise UnreadableError(f"{self.path}: `{name}` has the shape {dataset.shape}; two dimensions are expected.")
        self._check_storage(dataset, name)
        return dataset

    def _check_storage(self, dataset: h5py.Dataset, name: str) -> None:
        declared_bytes = math.prod(dataset.shape) * dataset.dtype.itemsize
        chunk = dataset.chunks or dataset.shape
        chunk_bytes = math.prod(chunk) * dataset.dtype.itemsize if dataset.chunks else 0
        num_chunks = math.prod(-(-n // max(side, 1)) for n, side in zip(dataset.shape, chunk, strict=True))
        stored_bytes = dataset.id.get_storage_size()
        if chunk_bytes > MAX_CHUNK_BYTES or num_chunks > MAX_CHUNKS or stored_bytes * MAX_GROWTH < declared_bytes:
            raise DecompressionBombError(
                f"{self.path}: `{name}` declares {declared_bytes:,} bytes in {num_chunks:,} chunks of "
                f"{chunk_bytes:,} bytes, and the file holds {stored_bytes:,} bytes of them; it is not read."
            )


def _matrix_shape(shape: tuple[int, ...]) -> Any:
    """(rows, columns) of a matrix, or of a batch of one; None for any other shape."""
    matrix = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
    return matrix if len(matrix) == 2 else None
