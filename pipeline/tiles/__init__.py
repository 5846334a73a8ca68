"""Stores into tile tables."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "dataset": "TileDataset",
        "table": "read_table TileTable",
        "tile": "make_tile_table",
    },
)
