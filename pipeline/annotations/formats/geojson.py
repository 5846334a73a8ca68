"""GeoJSON features as QuPath reads them, for both predictions and annotations.

Format: QuPath's `QuPathTypeAdapters` (a classification without a colour makes its reader throw; ids must
be UUIDs; `names` holds the parts of a class such as "Tumor: Positive").
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.box import Box
from pipeline.files import write_text_atomic

COLOURS = ([76, 114, 176], [200, 60, 60], [85, 168, 104], [204, 160, 60], [129, 114, 179], [100, 181, 205])
"""One per class, in order; colour-blind readers can tell the first two apart."""


def qupath_origin_xy0(bounds_px0: Box | None) -> tuple[int, int]:
    """Origin of QuPath's coordinates, in level-0 pixels: the scanned area's corner, if the frame is larger.

    QuPath's OpenSlide reader cuts slides to OpenSlide's `bounds` unless it is opened with `--no-crop`.

    Args:
        bounds_px0: the scanned area, from the slide's store.
    """
    return (bounds_px0.x_px, bounds_px0.y_px) if bounds_px0 else (0, 0)


def classification(name: str, color_rgb: Sequence[int] | None = None) -> dict[str, Any]:
    """A class with its colour, or with one that depends on the name alone."""
    color = list(color_rgb) if color_rgb else COLOURS[zlib.crc32(name.encode()) % len(COLOURS)]
    names = name.split(": ")
    return {"names": names, "color": color} if len(names) > 1 else {"name": name, "color": color}


def feature(
    geometry: Mapping[str, Any],
    object_id: str,
    object_type: str,
    *,
    is_locked: bool = False,
    nucleus: Mapping[str, Any] | None = None,
    **properties: Any,
) -> dict[str, Any]:
    """One object; properties that are None or empty are left out."""
    kept = {key: value for key, value in properties.items() if value not in (None, {}, "")}
    locked = {"isLocked": True} if is_locked else {}
    return {
        "type": "Feature",
        "id": object_id,
        "geometry": geometry,
        **({"nucleusGeometry": nucleus} if nucleus else {}),
        "properties": {"objectType": object_type, **locked, **kept},
    }


def write_features(path: Path, features: Iterable[Mapping[str, Any]]) -> None:
    """Write a FeatureCollection, one feature per line."""
    lines = ",\n".join(json.dumps(item, allow_nan=False) for item in features)
    write_text_atomic(path, f'{{"type":"FeatureCollection","features":[\n{lines}\n]}}\n')
