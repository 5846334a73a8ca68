"""Predictions as Parquet: the columns of the CSV, with the model's exact half-precision probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.export.common.cells import CellBlock, cell_blocks, corners_px0, fingerprint
from pipeline.export.common.target import new_file
from pipeline.export.csv.predictions import CORNER_COLUMNS
from pipeline.store.layers.overlays import Predictions
from pipeline.units import RESEARCH_USE

METADATA_KEY = b"gemslide"


def write_parquet(path: Path, slide_id: str, source_sha256: str, predictions: Predictions) -> None:
    """Write slide_id, minx, miny, width, height (int64, level-0 pixels), prob_<class>… (float32), in grid row order.

    The schema's metadata key `gemslide` is JSON: `model`, `source_sha256`, `coords_convention` ("level0_xy"),
    `class_names`, `stride_px0`, `side_px0`, `predictions_sha256`, `research_use`.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    metadata = {
        "model": predictions.model_id,
        "source_sha256": source_sha256,
        "coords_convention": "level0_xy",
        "class_names": predictions.class_names,
        "stride_px0": predictions.stride_px0,
        "side_px0": predictions.side_px0,
        "predictions_sha256": fingerprint(predictions),
        "research_use": RESEARCH_USE,
    }
    fields = [("slide_id", pa.dictionary(pa.int32(), pa.string()))]
    fields += [(name, pa.int64()) for name in CORNER_COLUMNS]
    fields += [(f"prob_{name}", pa.float32()) for name in predictions.class_names]
    schema = pa.schema(fields, metadata={METADATA_KEY: json.dumps(metadata).encode()})
    with new_file(path) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for block in cell_blocks(predictions):
            writer.write_batch(pa.record_batch(_columns(block, slide_id, predictions), schema=schema))


def _columns(block: CellBlock, slide_id: str, predictions: Predictions) -> list[Any]:
    side = np.full(len(block.rows), round(predictions.side_px0), np.int64)
    x, y = (corners_px0(indices, predictions.stride_px0) for indices in (block.columns, block.rows))
    slide_ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(side), np.int32)), [slide_id])
    return [slide_ids, x, y, side, side, *block.probabilities_kn.astype(np.float32)]
