"""The label `damaged`: where a slide's file was damaged, so that its finest level is white there.

It has one cell for each tile of the source's finest level. A store without it has no known damage.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.grid import tissue_fraction
from pipeline.places.object_path import StorePath
from pipeline.store.format.inside import INGEST_AGAIN
from pipeline.store.format.layout import DAMAGED
from pipeline.store.format.metadata import damaged_attributes, read_json, write_group
from pipeline.store.format.plain_array import write_array
from pipeline.store.format.root import read_root
from pipeline.store.layers.labels import read_label
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

MAX_CELL_PX0 = 2**16


def write_damaged(store: Path, mask_yx: NDArray[np.bool_], cell_px0: int, mpp0: float, num_datasets: int) -> None:
    """Write the label: as many datasets as the image has, each half the last; a partly damaged cell is damaged.

    Args:
        mask_yx: the finest dataset; cell (0, 0) starts at the slide's corner.
        cell_px0: side of its cells in level-0 pixels.
    """
    mask = mask_yx.astype(np.uint8)
    for index in range(num_datasets):
        write_array(store / DAMAGED / str(index), mask, "yx", fill_value=0)
        mask = _any_2x2(mask)
    spacings_um = [mpp0 * cell_px0 * 2**i for i in range(num_datasets)]
    write_group(store / DAMAGED, damaged_attributes(spacings_um, mpp0, cell_px0))


def has_damaged(store: StorePath) -> bool:
    """Whether a store has the label, intact or not."""
    return (store / DAMAGED / "zarr.json").exists()


def read_damaged(store: StorePath, *, stated_tiles: int | None = None) -> tuple[NDArray[np.uint8], int] | None:
    """The finest mask (y, x), 1 = damaged, and the level-0 pixels along a cell; None: no damage is known.

    Args:
        stated_tiles: damaged tiles according to the root, if it has been read.

    Raises:
        UnreadableError: the store states damage but has no label, or the label cannot be read.
    """
    if not has_damaged(store):
        tiles = damaged_tiles(store) if stated_tiles is None else stated_tiles
        if tiles:
            damaged = counted(tiles, "tile of the slide is", "tiles of the slide are")
            raise UnreadableError(f"{store / DAMAGED}: is missing, but {damaged} damaged. {INGEST_AGAIN}")
        return None
    try:
        cell_px0 = read_json(store / DAMAGED / "zarr.json")["attributes"]["gemslide"]["cell_px0"]
        if type(cell_px0) is not int or not 1 <= cell_px0 <= MAX_CELL_PX0:
            raise ValueError(f"cells of {cell_px0!r:.40} px")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(
            f"{store / DAMAGED}: cannot be read ({type(error).__name__}: {error}). {INGEST_AGAIN}"
        ) from error
    return read_label(store, "damaged", "0").astype(np.uint8), cell_px0


def damaged_tiles(store: StorePath) -> int:
    """Number of tiles of the source's finest level that were damaged and masked. Raises UnreadableError: no store."""
    return read_root(store).damaged_tiles


def damaged_fraction(store: StorePath, corners_xy0: NDArray[np.int64], side_px0: int) -> NDArray[np.float32]:
    """Share of each square that is damaged, float32 of shape (tiles,): exactly 0 for those without damage.

    Args:
        corners_xy0: top left corners in level-0 pixels, int64 (tiles, 2).

    Raises:
        UnreadableError: as `read_damaged`.
    """
    damaged = read_damaged(store)
    if damaged is None:
        return np.zeros(len(corners_xy0), np.float32)
    mask_yx, cell_px0 = damaged
    first, last = corners_xy0 // cell_px0, (corners_xy0 + side_px0 - 1) // cell_px0
    integral = _integral(mask_yx)
    (left, top), (right, bottom) = (_clipped(index_xy, mask_yx) for index_xy in (first, last + 1))
    touched = integral[bottom, right] - integral[top, right] - integral[bottom, left] + integral[top, left]
    share = np.maximum(tissue_fraction(corners_xy0, side_px0, mask_yx, cell_px0), 1 / side_px0**2)
    return np.where(touched > 0, share, 0).astype(np.float32)


def damaged_cells(
    mask_yx: NDArray[np.uint8], mask_px0: int, shape_yx: tuple[int, int], cell_px0: float
) -> NDArray[np.bool_]:
    """The mask in another grid from the same corner: a cell is damaged if any of it is, bool of `shape_yx`.

    Args:
        mask_px0: side of a cell of the mask in level-0 pixels.
        cell_px0: side of a cell of the other grid.
    """
    integral = _integral(mask_yx)
    spans = []
    for count, size in zip(shape_yx, mask_yx.shape, strict=True):
        edges = np.arange(count + 1) * cell_px0 / mask_px0
        spans.append(
            (np.clip(np.floor(edges[:-1]), 0, size).astype(int), np.clip(np.ceil(edges[1:]), 0, size).astype(int))
        )
    (top, bottom), (left, right) = spans
    sums = (
        integral[np.ix_(bottom, right)] - integral[np.ix_(top, right)]
        - integral[np.ix_(bottom, left)] + integral[np.ix_(top, left)]
    )  # fmt: skip
    return np.asarray(sums > 0)


def _integral(mask_yx: NDArray[np.uint8]) -> NDArray[np.int64]:
    sums = np.zeros((mask_yx.shape[0] + 1, mask_yx.shape[1] + 1), np.int64)
    sums[1:, 1:] = (mask_yx > 0).cumsum(0, dtype=np.int64).cumsum(1)
    return sums


def _clipped(index_xy: NDArray[np.int64], mask_yx: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows, columns = mask_yx.shape
    return np.clip(index_xy[:, 0], 0, columns), np.clip(index_xy[:, 1], 0, rows)


def _any_2x2(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = mask.shape
    padded = np.pad(mask, ((0, height % 2), (0, width % 2)))
    blocks = padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2)
    return np.asarray(blocks.max((1, 3)), dtype=np.uint8)
