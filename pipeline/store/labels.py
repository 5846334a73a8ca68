"""Small arrays of a store that are not the slide's pixels: the tissue label and prediction maps.

They use only zarr's core codecs, so that every zarr program reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from pipeline.errors import UnreadableError
from pipeline.store.layout import LABELS, TISSUE
from pipeline.store.metadata import read_json, tissue_attributes, write_group

MAX_CHUNK = 1024
INGEST_AGAIN = "The store is damaged; delete it and ingest the slide again."


def write_array(path: Path, values: NDArray[Any], axes: str, *, fill_value: float) -> None:
    """One dataset as a plain chunked zarr v3 array, compressed with zstd."""
    side = tuple(n if axis == "c" else min(n, MAX_CHUNK) for n, axis in zip(values.shape, axes, strict=True))
    array = zarr.create_array(
        store=str(path),
        shape=values.shape,
        dtype=values.dtype,
        chunks=side,
        compressors=[ZstdCodec(level=3)],
        fill_value=fill_value,
        dimension_names=tuple(axes),
    )
    array[...] = values


def read_array(path: Path) -> NDArray[Any]:
    """All values of a small array.

    Raises:
        UnreadableError: not there, or damaged.
    """
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
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UnreadableError(
            f"{store / TISSUE}: no readable tissue mask ({type(error).__name__}: {error}). {INGEST_AGAIN}"
        ) from error
    return read_array(store / TISSUE / "0").astype(np.uint8), mpp
