"""A few tiles of real tissue on which to try a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.box import Box
from pipeline.errors import NoSlidesError, NoTissueError
from pipeline.grid import CoarseSlideError, TileGrid, tile_grid
from pipeline.project import Project
from pipeline.store.layers.labels import tissue_share
from pipeline.store.reading.reader import StoreReader
from training.foundation.tile_read import TileRead

MIN_TISSUE = 0.05


@dataclass(frozen=True)
class SampledTiles:
    """Tiles with tissue from different positions of one slide, which can be read in several ways.

    Each way returns uint8 (tiles, tile_px, tile_px, 3), RGB.
    """

    reader: StoreReader
    grid: TileGrid
    chosen: NDArray[np.int64]
    """Indices into the grid."""

    def read(self, read: TileRead) -> NDArray[np.uint8]:
        """Read the tiles as gemslide does for training and inference."""
        grid = self.grid
        level = self.reader.tile_level(read, mpp=grid.mpp, side_px0=grid.side_px0)
        corners = grid.corners_xy0[self.chosen].tolist()
        return np.stack([self.reader.read_square(level, x, y, grid.side_px0, grid.tile_px) for x, y in corners])

    def read_as_wsinfer(self) -> NDArray[np.uint8]:
        """Read the tiles as WSInfer does: regions of level 0, resized by Pillow with bilinear interpolation."""
        side_px0, size_wh = self.grid.side_px0, (self.grid.tile_px, self.grid.tile_px)
        regions = (
            Image.fromarray(self.reader.read_region(0, Box(x, y, side_px0, side_px0)))
            for x, y in self.grid.corners_xy0[self.chosen].tolist()
        )
        return np.stack([np.asarray(region.resize(size_wh, Image.Resampling.BILINEAR)) for region in regions])


def sample_tiles(
    project: Project,
    slide_ids: Sequence[str],
    *,
    tile_px: int,
    mpp: float,
    count: int,
    read: TileRead = "level",
) -> NDArray[np.uint8]:
    """Exactly `count` of `find_tiles`, read as gemslide does, uint8 (count, tile_px, tile_px, 3), RGB.

    Raises:
        NoSlidesError, NoTissueError: as `find_tiles`.
    """
    return find_tiles(project, slide_ids, tile_px=tile_px, mpp=mpp, at_least=count, at_most=count).read(read)


def find_tiles(
    project: Project, slide_ids: Sequence[str], *, tile_px: int, mpp: float, at_least: int, at_most: int
) -> SampledTiles:
    """Tiles with tissue from the first slide that has enough, evenly spread over the tiles with the most tissue.

    Raises:
        NoSlidesError: no slides. NoTissueError: no slide has enough such tiles.
    """
    if not slide_ids:
        raise NoSlidesError(
            f"{project.slides_dir}: no slides; an export must be compared with its model on real tiles. Ingest a slide "
            "(`gemslide ingest`), or name a project that has some with `--project`."
        )
    reasons = []
    for slide_id in slide_ids:
        reader = StoreReader(project.stored_at(slide_id))
        try:
            grid = tile_grid(reader.size_wh_px0, reader.mpp0, tile_px=tile_px, mpp=mpp, fixed_by="the model")
        except CoarseSlideError:
            reasons.append(f"{slide_id} is coarser than {mpp:g} µm/px")
            continue
        chosen = _places(reader, grid, at_most)
        if len(chosen) >= at_least:
            return SampledTiles(reader, grid, chosen)
        reasons.append(f"{slide_id} has {len(chosen)}")
    raise NoTissueError(
        f"{at_least} tiles of {tile_px} px at {mpp:g} µm/px with tissue are needed for the comparison; "
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
