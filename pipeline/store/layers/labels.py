"""The label images of a store: tissue; `damaged.py` has the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UnreadableError
from pipeline.grid import tissue_fraction
from pipeline.store.inside import INGEST_AGAIN
from pipeline.store.layout import DAMAGED, LABELS, TISSUE
from pipeline.store.metadata import read_json, tissue_attributes, write_group
from pipeline.store.plain_array import read_array, write_array

MASK_AGAIN = "`gemslide ingest` of the same slide makes it from the store's pixels, and keeps the rest."
MAX_MASK_MPP = 1e4
"""Microns per cell of a tissue mask."""


def write_tissue(store: Path, mask_yx: NDArray[np.bool_], mpp: float, mpp0: float, num_datasets: int) -> None:
    """The tissue label, 1 = tissue: as many datasets as the image has (a rule of NGFF), each half the last.

    Args:
        mask_yx: the finest dataset; cell (0, 0) starts at the slide's corner.
        mpp: microns per cell of it.
    """
    mask = mask_yx.astype(np.uint8)
    for index in range(num_datasets):
        write_array(store / TISSUE / str(index), mask, "yx", fill_value=0)
        mask = _majority_2x2(mask)
    names = ["tissue", "damaged"] if (store / DAMAGED).exists() else ["tissue"]
    write_group(store / LABELS, {"ome": {"version": "0.5", "labels": names}})
    spacings = [mpp * 2**i for i in range(num_datasets)]
    write_group(store / TISSUE, tissue_attributes(spacings, mpp0))  # last: with it, the mask is complete


def has_tissue(store: Path) -> bool:
    """Whether a store has a tissue mask, whole or damaged."""
    return (store / TISSUE / "zarr.json").exists()


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
    if not has_tissue(store):
        raise UnreadableError(f"{store / TISSUE}: the store has no tissue mask. {MASK_AGAIN}")
    try:
        attributes = read_json(store / TISSUE / "zarr.json")["attributes"]["ome"]["multiscales"][0]
        scale = attributes["datasets"][0]["coordinateTransformations"][0]["scale"]
        mpp = float(scale[-1])
        if not 0 < mpp < MAX_MASK_MPP:
            raise ValueError(f"cells of {mpp} µm")
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UnreadableError(
            f"{store / TISSUE}: no readable tissue mask ({type(error).__name__}: {error}). "
            f"Delete this folder: then {MASK_AGAIN}"
        ) from error
    return read_label(store, "tissue", "0").astype(np.uint8), mpp


def tissue_share(store: Path, mpp0: float, corners_xy0: NDArray[np.int64], side_px0: int) -> NDArray[np.float32]:
    """Share of each square that is tissue, float32 of shape (tiles,).

    Args:
        mpp0: of the slide.
        corners_xy0: top left corners in level-0 pixels, int64 (tiles, 2).

    Raises:
        UnreadableError: as `read_tissue`.
    """
    mask_yx, mask_mpp = read_tissue(store)
    return tissue_fraction(corners_xy0, side_px0, mask_yx, mask_mpp / mpp0)


def read_label(store: Path, label: str, dataset: str) -> NDArray[Any]:
    """One dataset of a label image, (y, x).

    Raises:
        UnreadableError: not there, or damaged.
    """
    name = f"{LABELS}/{label}/{dataset}"
    remedy = f"Delete the folder {TISSUE}: then {MASK_AGAIN}" if label == "tissue" else INGEST_AGAIN
    try:
        values = read_array(store, name)
    except UnreadableError as error:
        raise UnreadableError(f"{error} {remedy}") from error
    if values.ndim != 2:
        raise UnreadableError(f"{store / name}: {values.ndim} axes, a label has two. {remedy}")
    return values
