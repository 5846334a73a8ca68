"""Small arrays of a store that are not the slide's pixels: the tissue label and prediction maps.

They use only zarr's core codecs, so that every zarr program reads them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UnreadableError
from pipeline.files import write_bytes_atomic
from pipeline.store.codecs import encode_zstd
from pipeline.store.layout import LABELS, TISSUE, ZSTD_LEVEL
from pipeline.store.metadata import read_json, tissue_attributes, write_group, write_json

MAX_CHUNK = 2048
MAX_MASK_MPP = 1e4
"""Microns per cell of a tissue mask."""
INGEST_AGAIN = "The store is damaged; delete it and ingest the slide again."


def write_array(path: Path, values: NDArray[Any], axes: str, *, fill_value: float) -> None:
    """One dataset as a plain chunked zarr v3 array, compressed with zstd.

    Written without the zarr library, whose import takes longer than all of it, and which leaves out the fsync.
    """
    chunk = tuple(n if axis == "c" else min(n, MAX_CHUNK) for n, axis in zip(values.shape, axes, strict=True))
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "zarr.json", _plain_array_json(values, chunk, axes, fill_value))
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    for position in itertools.product(*(range(-(-n // side)) for n, side in zip(values.shape, chunk, strict=True))):
        part = little[tuple(slice(i * side, (i + 1) * side) for i, side in zip(position, chunk, strict=True))]
        beyond = [(0, side - n) for n, side in zip(part.shape, chunk, strict=True)]
        full = np.pad(part, beyond, constant_values=fill_value)
        write_bytes_atomic(path / "c" / "/".join(map(str, position)), encode_zstd(full, with_checksum=False))


def _plain_array_json(values: NDArray[Any], chunk: tuple[int, ...], axes: str, fill_value: float) -> dict[str, Any]:
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
        ],
    }


def read_array(path: Path) -> NDArray[Any]:
    """All values of a small array.

    Raises:
        UnreadableError: not there, or damaged.
    """
    import zarr  # not at the top: ingest writes these arrays and must start quickly

    try:
        return np.asarray(zarr.open_array(str(path), mode="r")[...])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UnreadableError(f"{path}: cannot be read ({type(error).__name__}: {error}). {INGEST_AGAIN}") from error


def write_tissue(store: Path, mask_yx: NDArray[np.bool_], mpp: float, mpp0: float, num_datasets: int) -> None:
    """The tissue label, 1 = tissue: as many datasets as the image has (a rule of NGFF), each half the last.

    Args:
        mask_yx: the finest dataset; cell (0, 0) starts at the slide's corner.
        mpp: microns per cell of it.
    """
    write_group(store / LABELS, {"ome": {"version": "0.5", "labels": ["tissue"]}})
    spacings = [mpp * 2**i for i in range(num_datasets)]
    write_group(store / TISSUE, tissue_attributes(spacings, mpp0))
    mask = mask_yx.astype(np.uint8)
    for index in range(num_datasets):
        write_array(store / TISSUE / str(index), mask, "yx", fill_value=0)
        mask = _majority_2x2(mask)


def _majority_2x2(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = mask.shape
    padded = np.pad(mask, ((0, height % 2), (0, width % 2)), mode="edge")
    blocks = padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2)
    return np.asarray(blocks.sum((1, 3)) >= 2, dtype=np.uint8)


def read_tissue(store: Path) -> tuple[NDArray[np.uint8], float]:
    """The finest tissue mask (y, x) and its microns per cell.

    Raises:
        UnreadableError: not there, or damaged.
    """
    try:
        attributes = read_json(store / TISSUE / "zarr.json")["attributes"]["ome"]["multiscales"][0]
        scale = attributes["datasets"][0]["coordinateTransformations"][0]["scale"]
        mpp = float(scale[-1])
        if not 0 < mpp < MAX_MASK_MPP:
            raise ValueError(f"cells of {mpp} µm")
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UnreadableError(
            f"{store / TISSUE}: no readable tissue mask ({type(error).__name__}: {error}). {INGEST_AGAIN}"
        ) from error
    return read_array(store / TISSUE / "0").astype(np.uint8), mpp
