"""Tiles as inference reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.blocks import TileSource, plan_slide
from pipeline.batches.reading import TileFeed
from pipeline.grid import TileGrid
from pipeline.store.reading.reader import StoreReader


def fed_tiles(
    reader: StoreReader,
    grid: TileGrid,
    chosen: NDArray[np.int64],
    *,
    batch_size: int = 7,
    stain: Mapping[str, Any] | None = None,
) -> NDArray[np.uint8]:
    """Finished tiles in the order of `chosen`, a list of grid indices."""
    level = reader.level_for_downsample(grid.mpp / reader.mpp0)
    source = TileSource(reader.path, level, grid.side_px0, grid.tile_px, stain)
    plan = plan_slide(source, grid, chosen, glass=chosen[:0], batch_size=batch_size)
    read = []
    with TileFeed() as feed:
        for block in plan.blocks():
            feed.add(block)
        while not feed.is_empty:
            read.append(feed.next().tiles_nhwc.copy())
    where = {int(index): position for position, index in enumerate(plan.order)}
    return np.concatenate(read)[[where[int(index)] for index in chosen]]
