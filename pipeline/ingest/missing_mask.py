"""A finished store whose tissue mask is gone gets it again, from its own pixels: no need to ingest for hours."""

from __future__ import annotations

from pipeline.config import TissueConfig
from pipeline.ingest.tissue import Tissue, overview_downsample, tissue_of_slide
from pipeline.store.damaged import read_damaged
from pipeline.store.labels import has_tissue, write_tissue
from pipeline.store.reader import StoreReader


def make_missing_mask(reader: StoreReader, config: TissueConfig) -> Tissue | None:
    """Write the mask that ingest wrote, byte for byte, where there is none. None: there is one."""
    if has_tissue(reader.path):
        return None
    level = reader.levels[reader.level_for_downsample(overview_downsample(reader.mpp0, config))].array
    tissue = tissue_of_slide(level, reader.size_wh_px0, reader.mpp0, config, read_damaged(reader.path))
    write_tissue(reader.path, tissue.mask_yx, tissue.mpp, reader.mpp0, len(reader.levels))
    return tissue
