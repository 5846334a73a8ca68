"""The tissue label of a store; `damaged.py` has the other label."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.grid import tissue_fraction
from pipeline.places.object_path import StorePath
from pipeline.store.format.inside import INGEST_AGAIN
from pipeline.store.format.layout import DAMAGED, LABELS, TISSUE
from pipeline.store.format.metadata import read_json, tissue_attributes, write_group
from pipeline.store.format.plain_array import read_array, write_array
from training.foundation.errors import UnreadableError

MASK_AGAIN = "`gemslide ingest` of the same slide recreates it from the store's pixels, and keeps the rest."
MAX_MASK_MPP = 1e4
"""Microns per cell of a tissue mask."""


def write_tissue(store: Path, mask_yx: NDArray[np.bool_], mpp: float, mpp0: float, num_datasets: int) -> None:
    """Write the tissue label, 1 = tissue: as many datasets as the image has (a rule of NGFF), each half the last.

    Args:
        mask_yx: the finest dataset; cell (0, 0) starts at the slide's corner.
        mpp: microns along its cells.
    """
    names = ["tissue", "damaged"] if (store / DAMAGED).exists() else ["tissue"]
    write_group(store / LABELS, {"ome": {"version": "0.5", "labels": names}})
    write_mask(store / TISSUE, mask_yx.astype(np.uint8), tissue_attributes(tissue_spacings(mpp, num_datasets), mpp0))


def write_mask(folder: Path, mask_yx: NDArray[np.uint8], attributes: dict[str, Any]) -> None:
    """Write a label's datasets, each half the last, and then its attributes, which complete it."""
    for index, mask in enumerate(mask_pyramid(mask_yx, _num_datasets(attributes))):
        write_array(folder / str(index), mask, "yx", fill_value=0)
    write_group(folder, attributes)


def _num_datasets(attributes: dict[str, Any]) -> int:
    return len(attributes["ome"]["multiscales"][0]["datasets"])


def tissue_spacings(mpp: float, num_datasets: int) -> list[float]:
    """Microns per cell of each dataset of a mask."""
    return [mpp * 2**i for i in range(num_datasets)]


def mask_pyramid(mask_yx: NDArray[np.uint8], num_datasets: int) -> list[NDArray[np.uint8]]:
    """A mask's datasets, finest first; a coarse cell is set if at least half of the four below it are."""
    pyramid = [mask_yx]
    while len(pyramid) < num_datasets:
        pyramid.append(_majority_2x2(pyramid[-1]))
    return pyramid


def has_tissue(store: StorePath) -> bool:
    """Whether a store has a tissue mask, intact or damaged."""
    return (store / TISSUE / "zarr.json").exists()


def _majority_2x2(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = mask.shape
    padded = np.pad(mask, ((0, height % 2), (0, width % 2)), mode="edge")
    blocks = padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2)
    return np.asarray(blocks.sum((1, 3)) >= 2, dtype=np.uint8)


def read_tissue(store: StorePath) -> tuple[NDArray[np.uint8], float]:
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


def mask_fingerprint(store: StorePath) -> str:
    """SHA-256 over a store's finest tissue mask and its resolution, to record what tiles were chosen with.

    Raises:
        UnreadableError: as `read_tissue`.
    """
    return fingerprint_of(*read_tissue(store))


def fingerprint_of(mask_yx: NDArray[np.uint8], mpp: float) -> str:
    """The same for a mask in memory."""
    return hashlib.sha256(f"{mask_yx.shape} {mpp} ".encode() + mask_yx.tobytes()).hexdigest()


def tissue_share(store: StorePath, mpp0: float, corners_xy0: NDArray[np.int64], side_px0: int) -> NDArray[np.float32]:
    """Share of each square that is tissue, float32 of shape (tiles,).

    Args:
        mpp0: of the slide.
        corners_xy0: top left corners in level-0 pixels, int64 (tiles, 2).

    Raises:
        UnreadableError: as `read_tissue`.
    """
    mask_yx, mask_mpp = read_tissue(store)
    return tissue_fraction(corners_xy0, side_px0, mask_yx, mask_mpp / mpp0)


def read_label(store: StorePath, label: str, dataset: str) -> NDArray[Any]:
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
