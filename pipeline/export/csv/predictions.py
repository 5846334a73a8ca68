"""Predictions as CSV, one row per tile, columns as WSInfer names them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.files import write_text_atomic
from pipeline.store.overlays import Predictions


def prediction_rows(slide_id: str, predictions: Predictions) -> pd.DataFrame:
    """slide_id, minx, miny, width, height (level-0 pixels), prob_<class>…; row by row of the grid."""
    rows, columns = np.nonzero(np.isfinite(predictions.probabilities_cyx[0]))
    side_px0 = round(predictions.side_px0)
    frame = pd.DataFrame(
        {
            "slide_id": slide_id,
            "minx": np.round(columns * predictions.stride_px0).astype(int),
            "miny": np.round(rows * predictions.stride_px0).astype(int),
            "width": side_px0,
            "height": side_px0,
        }
    )
    for index, name in enumerate(predictions.class_names):
        frame[f"prob_{name}"] = predictions.probabilities_cyx[index, rows, columns].astype(np.float32)
    return frame


def write_csv(path: Path, slide_id: str, predictions: Predictions) -> None:
    """Write the rows, probabilities with four decimals."""
    frame = prediction_rows(slide_id, predictions)
    write_text_atomic(path, frame.to_csv(index=False, float_format="%.4f"))
