"""A few tiles of real tissue, to try a model on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import NoSlidesError, NoTissueError
from pipeline.grid import CoarseSlideError, TileGrid, tile_grid
from pipeline.project import Project
from pipeline.store.labels import tissue_share
from pipeline.store.reader import StoreReader

MIN_TISSUE = 0.05


def sample_tiles(
    project: Project, slide_ids: Sequence[str], *, tile_px: int, mpp: float, count: int
) -> NDArray[np.uint8]:
    """Tiles with tissue, from the first slides that have as many: evenly spread over those with most of it.

    Returns:
        uint8 (count, tile_px, tile_px, 3), RGB, all from different places.

    Raises:
        NoSlidesError: the project has none. NoTissueError: none of them has so many such tiles.
    """
    if not slide_ids:
        raise NoSlidesError(
            f"{project.slides_dir}: no slides, and an export is compared with its model on real tiles. Ingest one "
            "(`gemslide ingest`), or name a project that has some with `--project`."
        )
    reasons = []
    for slide_id in slide_ids:
        reader = StoreReader(project.store_path(slide_id))
        try:
            grid = tile_grid(reader.size_wh_px0, reader.mpp0, tile_px=tile_px, mpp=mpp, fixed_by="the model")
        except CoarseSlideError:
            reasons.append(f"{slide_id} is coarser than {mpp:g} µm/px")
            continue
        chosen = _places(reader, grid, count)
        if len(chosen) == count:
            level = reader.level_for_downsample(grid.mpp / reader.mpp0)
            corners = grid.corners_xy0[chosen]
            return np.stack([reader.read_square(level, int(x), int(y), grid.side_px0, tile_px) for x, y in corners])
        reasons.append(f"{slide_id} has {len(chosen)}")
    raise NoTissueError(
        f"{count} tiles of {tile_px} px at {mpp:g} µm/px with tissue are needed to compare on; "
        f"{'; '.join(reasons[:5])}. "
        "Ingest a slide with more tissue."
    )


def _places(reader: StoreReader, grid: TileGrid, count: int) -> NDArray[np.int64]:
    """Indices into the grid, at most `count`."""
    tissue = tissue_share(reader.path, reader.mpp0, grid.corners_xy0, grid.side_px0)
    enough = np.flatnonzero(tissue >= max(MIN_TISSUE, float(tissue.max(initial=0)) / 2))
    if len(enough) <= count:
        return enough
    spread: NDArray[np.int64] = enough[np.linspace(0, len(enough) - 1, count).astype(int)]
    return spread
