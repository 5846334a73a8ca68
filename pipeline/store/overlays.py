"""Predictions of a model inside the slide store: one NGFF image per model, one cell per stride."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UnreadableError
from pipeline.files import new_folder
from pipeline.store.labels import read_array, write_array
from pipeline.store.layout import PREDICTIONS
from pipeline.store.metadata import multiscale, read_json, write_group

Probabilities = NDArray[np.float16]
"""float16 of shape (classes, rows, columns); NaN = not predicted."""


@dataclass(frozen=True)
class Predictions:
    """One model's probabilities over one slide."""

    model_id: str
    class_names: tuple[str, ...]
    probabilities_cyx: Probabilities
    stride_px0: float
    """Side of a cell in level-0 pixels; cell (0, 0) starts at the slide's top left."""
    side_px0: float
    """Side of the square each cell was predicted from, starting at the cell's corner."""
    attributes: dict[str, Any]

    def at(self, x_px0: float, y_px0: float) -> dict[str, float] | None:
        """Probabilities per class at a level-0 position; None where nothing was predicted."""
        _, rows, columns = self.probabilities_cyx.shape
        row, column = int(y_px0 // self.stride_px0), int(x_px0 // self.stride_px0)
        if x_px0 < 0 or y_px0 < 0 or row >= rows or column >= columns:
            return None
        values = self.probabilities_cyx[:, row, column].astype(float)
        return None if np.isnan(values).any() else dict(zip(self.class_names, values.tolist(), strict=True))


def write_predictions(store: Path, predictions: Predictions, *, mpp0: float) -> Path:
    """Put a model's probabilities into the store; they appear whole or not at all, replacing older ones."""
    parent = store / PREDICTIONS
    if not (parent / "zarr.json").exists():
        write_group(parent, {})
    pyramid = _nan_pyramid(predictions.probabilities_cyx)
    spacing = predictions.stride_px0 * mpp0
    spacings = [spacing * 2**i for i in range(len(pyramid))]
    entry = multiscale(predictions.model_id, "nanmean", "cyx", spacings, offset_um=spacing / 2)
    # The image's own frame counts from the centre of its first pixel in NGFF; half a cell is the contract.
    attributes = {
        "ome": {"version": "0.5", "multiscales": [entry]},
        "gemslide": {
            **predictions.attributes,
            "model_id": predictions.model_id,
            "class_names": list(predictions.class_names),
            "stride_px0": predictions.stride_px0,
            "side_px0": predictions.side_px0,
        },
    }
    final = parent / predictions.model_id
    with new_folder(final) as folder:
        for index, values in enumerate(pyramid):
            write_array(folder / str(index), values, "cyx", fill_value=float("nan"))
        write_group(folder, attributes)
    return final


def list_predictions(store: Path) -> list[str]:
    """Model ids with complete predictions on this slide."""
    parent = store / PREDICTIONS
    if not parent.is_dir():
        return []
    return sorted(path.name for path in parent.iterdir() if path.name[0] != "." and (path / "zarr.json").exists())


def read_predictions(store: Path, model_id: str) -> Predictions:
    """Predictions of one model.

    Raises:
        UnreadableError: none there, or damaged.
    """
    path = store / PREDICTIONS / model_id
    try:
        ours = read_json(path / "zarr.json")["attributes"]["gemslide"]
        values = read_array(path / "0").astype(np.float16)
        return Predictions(
            model_id=model_id,
            class_names=tuple(ours["class_names"]),
            probabilities_cyx=values,
            stride_px0=float(ours["stride_px0"]),
            side_px0=float(ours["side_px0"]),
            attributes=ours,
        )
    except (UnreadableError, OSError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(
            f"{path}: no readable predictions ({type(error).__name__}: {error}). "
            f"The slide has: {', '.join(list_predictions(store)) or 'none'}. Make them (again) with `gemslide infer`."
        ) from error


def _nan_pyramid(values_cyx: Probabilities) -> list[Probabilities]:
    """Datasets from fine to coarse until a side is at most 64 cells; a coarse cell averages what was predicted."""
    pyramid = [values_cyx]
    while max(pyramid[-1].shape[1:]) > 64:
        pyramid.append(_nan_mean_2x2(pyramid[-1]))
    return pyramid


def _nan_mean_2x2(values_cyx: Probabilities) -> Probabilities:
    classes, rows, columns = values_cyx.shape
    padding = ((0, 0), (0, rows % 2), (0, columns % 2))
    padded = np.pad(values_cyx.astype(np.float32), padding, constant_values=np.nan)
    blocks = padded.reshape(classes, padded.shape[1] // 2, 2, padded.shape[2] // 2, 2)
    counts = np.isfinite(blocks).sum((2, 4))
    sums = np.nansum(blocks, axis=(2, 4))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float16)
