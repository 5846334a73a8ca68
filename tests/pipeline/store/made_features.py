"""Features of a small slide: more than one chunk of rows if asked for, no two rows or corners alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pipeline.store.format.plain_array import write_array
from pipeline.store.layers.features import Features
from pipeline.store.reading.reader import StoreReader

ENCODER_ID = "lite0-0123abcd"
WEIGHTS = "a" * 64


def made_features(
    reader: StoreReader, num_tiles: int = 12, dims: int = 5, *, encoder_id: str = ENCODER_ID, stride_px0: int = 24
) -> Features:
    """Tiles of 32 px0 in rows from the top left, 16 px each, the last ones at the slide's right edge left out."""
    columns = (reader.size_wh_px0[0] - 32) // stride_px0 + 1
    rows, places = np.divmod(np.arange(num_tiles), columns)
    values = np.random.default_rng(num_tiles * 1000 + dims).normal(size=(num_tiles, dims))
    return Features(
        encoder_id=encoder_id,
        values_nd=values.astype(np.float16),
        xy0_n2=np.stack([places, rows], 1).astype(np.int32) * np.int32(stride_px0),
        side_px0=32.0,
        stride_px0=float(stride_px0),
        attributes={
            "encoder": {"name": "lite0", "licence": "Apache-2.0"},
            "weights_sha256": WEIGHTS,
            "made_from": {
                "source_sha256": reader.source_sha256,
                "encoder": {"encoder_id": encoder_id, "weights_sha256": WEIGHTS},
                "tiles": {"tile_px": 16, "mpp": 2 * reader.mpp0, "min_tissue": 0.5, "mask": "b" * 64, "read": "level"},
            },
        },
    )


def edit_attribute(folder: Path, **changes: object) -> None:
    """Change keys of the attribute `gemslide` of a group."""
    meta = json.loads((folder / "zarr.json").read_text())
    meta["attributes"]["gemslide"] |= changes
    (folder / "zarr.json").write_text(json.dumps(meta))


def overwrite_array(path: Path, values: np.ndarray) -> None:
    """Replace an array by another one in one chunk, with valid checksums."""
    write_array(path, values, ("tile", "x"), fill_value=0, chunk_shape=values.shape)
