"""Places a pathologist should look at first: connected cells above the threshold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from pipeline.files import write_text_atomic
from pipeline.project import Project
from pipeline.store.overlays import Predictions

Hotspot = dict[str, Any]
"""x_px0, y_px0 (centre of its strongest cell), area_um2, score (highest probability), class."""

_TOUCHING = np.ones((3, 3), int)


def find_hotspots(
    predictions: Predictions, class_names: Sequence[str], *, mpp0: float, threshold: float, most: int
) -> list[Hotspot]:
    """Connected areas where a class reaches `threshold`, strongest first, larger first among equals."""
    found: list[Hotspot] = []
    for name in class_names:
        found += _of_class(predictions, name, mpp0, threshold)
    found.sort(key=lambda spot: (-spot["score"], -spot["area_um2"], spot["y_px0"], spot["x_px0"]))
    return found[:most]


def _of_class(predictions: Predictions, name: str, mpp0: float, threshold: float) -> list[Hotspot]:
    probability_yx = predictions.probabilities_cyx[predictions.class_names.index(name)].astype(np.float32)
    labels, count = ndimage.label(np.nan_to_num(probability_yx, nan=0.0) >= threshold, structure=_TOUCHING)
    if not count:
        return []
    stride_px0 = predictions.stride_px0
    cell_um2 = (stride_px0 * mpp0) ** 2
    numbers = range(1, count + 1)
    peaks = ndimage.maximum_position(np.nan_to_num(probability_yx, nan=0.0), labels, numbers)
    sizes = ndimage.sum_labels(np.ones_like(labels), labels, numbers)
    return [
        {
            "x_px0": round((column + 0.5) * stride_px0),
            "y_px0": round((row + 0.5) * stride_px0),
            "area_um2": round(float(size) * cell_um2, 1),
            "score": round(float(probability_yx[row, column]), 4),
            "class": name,
        }
        for (row, column), size in zip(peaks, sizes, strict=True)
    ]


def write_hotspots(path: Path, hotspots: list[Hotspot]) -> None:
    """Hotspots as JSON."""
    write_text_atomic(path, json.dumps(hotspots, indent=1) + "\n")


def read_hotspots(project: Path, slide_id: str, model_id: str) -> list[Hotspot]:
    """Hotspots of a slide; none where inference left no file."""
    path = Project(project).result_dir(slide_id, model_id) / "hotspots.json"
    if not path.exists():
        return []
    spots: list[Hotspot] = json.loads(path.read_text(encoding="utf-8"))
    return spots
