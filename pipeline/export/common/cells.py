"""The predicted cells of a slide, in blocks, for all formats that write one entry per cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.store.layers.overlays import Predictions

_VALUES_PER_BLOCK, _MIN_CELLS = 2**12, 512
"""Probabilities formatted at a time (a few megabytes), and the least cells in a block, even with very many classes."""


@dataclass(frozen=True)
class CellBlock:
    """Neighbouring cells that were predicted, row by row of the grid."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    probabilities_kn: NDArray[np.float16]
    """float16 (classes, cells)."""

    def texts_of_class(self, index: int, text: Callable[[float], str]) -> list[str]:
        """The probabilities of one class as text, cell by cell; each distinct half-precision number is formatted
        once."""
        present, inverse = np.unique(self.probabilities_kn[index].view(np.uint16), return_inverse=True)
        table = np.array([text(float(value)) for value in present.view(np.float16)], dtype=object)
        texts: list[str] = table[inverse].tolist()
        return texts


def cell_blocks(predictions: Predictions) -> Iterator[CellBlock]:
    """All cells with predictions, row by row, a bounded number at a time."""
    values_cyx = predictions.probabilities_cyx
    rows, columns = np.nonzero(np.isfinite(values_cyx[0]))
    step = max(_MIN_CELLS, _VALUES_PER_BLOCK // len(values_cyx))
    for start in range(0, len(rows), step):
        here = slice(start, start + step)
        yield CellBlock(rows[here], columns[here], values_cyx[:, rows[here], columns[here]])


def corners_px0(indices: NDArray[np.int64], stride_px0: float) -> NDArray[np.int64]:
    """Left or top edges of cells in whole level-0 pixels."""
    return np.round(indices * stride_px0).astype(np.int64)


def fingerprint(predictions: Predictions) -> str:
    """SHA-256 of the array and the metadata that define it; for files whose values cannot be read back exactly."""
    values = np.ascontiguousarray(predictions.probabilities_cyx)
    header = (predictions.model_id, predictions.class_names, values.shape, predictions.stride_px0, predictions.side_px0)
    digest = hashlib.sha256(json.dumps(header).encode())
    # One bit pattern for "not predicted", whatever wrote it.
    digest.update(np.where(np.isnan(values), np.float16(np.nan), values).astype("<f2").tobytes())
    return digest.hexdigest()
