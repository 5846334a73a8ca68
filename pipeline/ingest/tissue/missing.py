"""The missing tissue mask of a finished store, rebuilt from its own pixels: no need to ingest for hours."""

from __future__ import annotations

from pydantic import ValidationError

from pipeline.ingest.tissue.detection import Tissue, overview_downsample, tissue_of_slide
from pipeline.settings.config import TissueConfig
from pipeline.store.layers.damaged import read_damaged
from pipeline.store.layers.labels import has_tissue, write_tissue
from pipeline.store.reading.reader import StoreReader


def make_missing_mask(reader: StoreReader, config: TissueConfig) -> Tissue | None:
    """Write the mask that ingest wrote, byte for byte, if it is missing. Returns None if it is not.

    Args:
        config: for a store that does not state the settings it was ingested with.
    """
    if has_tissue(reader.path):
        return None
    tissue = find_stored_tissue(reader, _ingested_with(reader) or config)
    write_tissue(reader.folder, tissue.mask_yx, tissue.mpp, reader.mpp0, len(reader.levels))
    return tissue


def find_stored_tissue(reader: StoreReader, config: TissueConfig) -> Tissue:
    """The tissue in a store's own pixels."""
    level = reader.levels[reader.level_for_downsample(overview_downsample(reader.mpp0, config))].array
    return tissue_of_slide(level, reader.size_wh_px0, reader.mpp0, config, read_damaged(reader.path))


def _ingested_with(reader: StoreReader) -> TissueConfig | None:
    settings = reader.attributes.ingest.get("settings")
    if not isinstance(settings, dict):
        return None
    try:
        return TissueConfig.model_validate(settings.get("tissue"))
    except ValidationError:  # of another version
        return None
