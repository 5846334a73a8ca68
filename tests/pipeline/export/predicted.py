"""Predictions to write: not square, every cell different, with names that formats must escape."""

from __future__ import annotations

import numpy as np

from pipeline.store.layers.overlays import Predictions

NAMES = ("stroma", 'tumour: "A", 50 %', "Größe <b>&\\")
MODEL_ID = "made-0123abcd"


def made_predictions(
    rows: int = 7, columns: int = 10, *, stride_px0: float = 128.0, names: tuple[str, ...] = NAMES
) -> Predictions:
    """Shares of one in every cell except the first row and a block in the middle, which were not predicted."""
    random = np.random.default_rng(rows * 1000 + columns)
    shares = random.dirichlet(np.full(len(names), 0.6), (rows, columns)).astype(np.float16)
    values = np.moveaxis(shares, -1, 0).copy()
    values[:, 0], values[:, 3:5, 4:7] = np.nan, np.nan
    return Predictions(MODEL_ID, names, values, stride_px0, stride_px0, {"versions": {"gemslide": "0"}})


def float32(predictions: Predictions) -> np.ndarray:
    return predictions.probabilities_cyx.astype(np.float32)
