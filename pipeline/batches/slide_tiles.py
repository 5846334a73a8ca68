"""Tiles of a slide that a network computes: its grid, those on tissue, and their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.blocks import SlidePlan, TileSource, plan_slide
from pipeline.errors import NoTissueError
from pipeline.grid import TileGrid
from pipeline.store.layers.damaged import damaged_fraction
from pipeline.store.layers.labels import tissue_share
from pipeline.store.reading.reader import StoreReader
from training.foundation.tile_read import TileRead
from training.foundation.words.counts import counted


def tissue_tiles(
    reader: StoreReader, grid: TileGrid, min_tissue: float, *, section: str
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Tissue share of each of the grid's tiles, NaN where it touches damage, and indices of those with enough.

    Args:
        section: of the settings that `min_tissue` is in, for messages.

    Raises:
        NoTissueError: there are none.
    """
    tissue = tissue_share(reader.path, reader.mpp0, grid.corners_xy0, grid.side_px0)
    tissue[damaged_fraction(reader.path, grid.corners_xy0, grid.side_px0) > 0] = np.nan
    chosen = np.flatnonzero(tissue >= min_tissue)
    if not len(chosen):
        beside = int(np.isnan(tissue).sum())
        damaged = f"; {counted(beside, 'touches', 'touch')} damage in the slide's file" if beside else ""
        raise NoTissueError(
            f"slide {reader.slide_id}: none of {counted(len(tissue), 'tile')} of {grid.side_px0} level-0 pixels is at "
            f"least {min_tissue:.0%} tissue{damaged}. Look at the tissue mask in the viewer; lower [{section}] "
            "min_tissue if the mask is right."
        )
    return tissue, chosen


def plan_slide_tiles(
    reader: StoreReader,
    grid: TileGrid,
    chosen: NDArray[np.int64],
    *,
    read: TileRead,
    stain: Mapping[str, Any] | None,
    glass: NDArray[np.int64],
    batch_size: int,
) -> SlidePlan:
    """Plan the order in which a network computes tiles of a slide.

    Args:
        chosen, glass: as `plan_slide` takes them.

    Raises:
        BadRecipeError: the tiles are too large to be read.
    """
    level = reader.tile_level(read, mpp=grid.mpp, side_px0=grid.side_px0)
    source = TileSource(reader.path, level, grid.side_px0, grid.tile_px, stain, reader.plane_um)
    return plan_slide(source, grid, chosen, glass=glass, batch_size=batch_size)
