"""Predictions as QuPath reads them: one locked tile object per cell, classified by its likeliest class.

Coordinates are level-0 pixels from where QuPath begins to count. Many objects should be tiles, not annotations.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.annotations.geojson import COLOURS, classification, feature, write_features
from pipeline.store.overlays import Predictions

_NAMESPACE = uuid.UUID("6f1a3c52-0d0e-5b7e-9f6d-2a4f6a2f7c11")


def write_geojson(
    path: Path, predictions: Predictions, source_sha256: str, *, origin_xy0: tuple[int, int] = (0, 0)
) -> None:
    """Write a FeatureCollection, feature by feature.

    Args:
        origin_xy0: where QuPath's coordinates begin (`qupath_origin_xy0`).
    """
    write_features(path, _features(predictions, source_sha256, origin_xy0))


def _features(predictions: Predictions, source_sha256: str, origin_xy0: tuple[int, int]) -> Iterator[dict[str, Any]]:
    side_px0 = predictions.side_px0
    values = predictions.probabilities_cyx.astype(np.float32)
    for row, column in np.argwhere(np.isfinite(values[0])):
        x = float(column * predictions.stride_px0) - origin_xy0[0]
        y = float(row * predictions.stride_px0) - origin_xy0[1]
        best = int(values[:, row, column].argmax())
        yield feature(
            {"type": "Polygon", "coordinates": [_square(x, y, side_px0)]},
            # The same prediction keeps its id, so that QuPath replaces instead of doubling it.
            str(uuid.uuid5(_NAMESPACE, f"{source_sha256}/{predictions.model_id}/{row}/{column}")),
            "tile",
            is_locked=True,
            classification=classification(predictions.class_names[best], COLOURS[best % len(COLOURS)]),
            measurements={
                f"prob_{name}": round(float(values[index, row, column]), 4)
                for index, name in enumerate(predictions.class_names)
            },
            metadata={"slide_sha256": source_sha256, "model": predictions.model_id},
        )


def _square(x: float, y: float, side: float) -> list[list[float]]:
    return [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
