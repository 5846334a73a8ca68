"""The OME-Zarr slide store: written once by ingest, read by everything else."""

from typing import TYPE_CHECKING

from training.foundation.lazy import public_names

if TYPE_CHECKING:
    from pipeline.box import Box as Box
    from pipeline.store.reader import StoreReader as StoreReader
    from pipeline.store.reader import is_store as is_store

__all__, __getattr__ = public_names(
    __name__,
    {
        "pipeline.box": "Box",
        "array_reader": "ArrayReader",
        "checksums": "write_checksums list_digest",
        "chunks": "decode_chunk encode_zstd",
        "colour": "colour_table ColourTable",
        "damaged": "damaged_cells damaged_fraction read_damaged write_damaged",
        "heat_thumbnail": "heat_thumbnail",
        "inside": "check_inside INGEST_AGAIN",
        "integrity": "find_damage find_overlay_damage image_arrays sampled WITH_CHUNK_CHECKSUMS WITH_LIST",
        "labels": "has_tissue MASK_AGAIN read_label read_tissue tissue_share write_tissue",
        "layout": "ArraySpec CHECKSUM_CODEC CHECKSUMS Codec CONTRACT_VERSION DAMAGED FILL_VALUE IMAGE LABELS "
        "MAX_CHUNK_PX MAX_SHARD_CHUNKS PREDICTIONS QUALITY TISSUE ZSTD_LEVEL",
        "memory": "bytes_at",
        "metadata": "first_finding Gate image_attributes Level MAX_LEVELS ome_xml read_json SlideAttributes Source "
        "write_group write_json",
        "overlays": "list_predictions MAX_CELL_PX0 nan_pyramid new_predictions PredictionGrid Predictions "
        "predictions_path read_class_names read_prediction_grid read_predictions",
        "plain_array": "array_names PlainArray write_array",
        "qc_scores": "Quality read_quality read_stain_fit SCORE_NAMES slide_normaliser stored_summary write_quality",
        "reader": "is_store LevelArray resize_square square_side_px StoreReader",
        "render": "damage_stripes DAMAGED_COLOUR for_screen render_crop_jpeg render_thumbnail_jpeg thumbnail",
        "screen": "Part screen_levels ScreenLevel tile_parts tile_pixels",
        "shard": "FileChecksum sum_file with_checksum write_shard",
        "threads": "CORES parallel_for",
    },
)
