"""The most attended tiles of a slide, as GeoJSON for QuPath and other programs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.slide_level.stored_bags import SlideFeatures

MOST = 200
"""Tiles in the file: those that a person can look at."""


def most_attended(shares_n: NDArray[np.float32], *, most: int = MOST) -> NDArray[np.int64]:
    """Indices of the most attended tiles, from the first on."""
    return np.argsort(-shares_n, kind="stable")[:most]


def attended_geojson(slide: SlideFeatures, shares_n: NDArray[np.float32], num_tiles: int, model_id: str) -> bytes:
    """Squares in level-0 pixels with `attention`: the tile's share, times the number of tiles of the patient.

    Args:
        num_tiles: tiles of all slides of the patient.
    """
    side = slide.stored.side_px0
    features: list[dict[str, Any]] = []
    for rank, index in enumerate(most_attended(shares_n), start=1):
        x, y = (float(value) for value in slide.stored.xy0_n2[index])
        ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
        attention = round(float(shares_n[index]) * num_tiles, 4)
        features.append(
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [ring]},
                "properties": {
                    "objectType": "annotation",
                    "name": f"attention {attention:g} × average",
                    "classification": {"name": "attention"},
                    "measurements": {"attention": attention, "rank": rank},
                },
            }
        )
    content = {"type": "FeatureCollection", "properties": {"model_id": model_id}, "features": features}
    return json.dumps(content).encode()
