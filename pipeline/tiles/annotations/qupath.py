"""QuPath GeoJSON: feature collections, bare lists of features, single features and bare geometries.

Format: QuPath's `QuPathTypeAdapters` (classification with `name` or `names`, or a bare string).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import shapely
from shapely.geometry import shape

from pipeline.errors import BadAnnotationError
from pipeline.tiles.annotations.region import Region

AREAS = ("Polygon", "MultiPolygon")


def read_qupath(path: Path) -> list[Region]:
    """Classified areas of a QuPath export, in file order. Points, lines and unclassified areas are left out.

    Raises:
        BadAnnotationError: not there, not GeoJSON, or a geometry that cannot be built.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise BadAnnotationError(f"{path}: no such file. Correct `annotations` in the manifest.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadAnnotationError(f"{path}: is not GeoJSON: {error}. Export it again from QuPath as GeoJSON.") from error
    regions = (_region(feature, f"{path.name}, feature {i}") for i, feature in enumerate(_features(content, path)))
    return [region for region in regions if region is not None]


def _features(content: Any, path: Path) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return content
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "FeatureCollection":
        features = content.get("features")
        if isinstance(features, list):
            return features
        raise BadAnnotationError(f"{path}: its `features` are {type(features).__name__}, not a list.")
    if kind == "Feature":
        return [content]
    if kind in AREAS:
        return [{"type": "Feature", "geometry": content, "properties": {}}]
    raise BadAnnotationError(
        f"{path}: holds {kind or type(content).__name__!r}, not a FeatureCollection, Feature, list or area."
    )


def _region(feature: Any, where: str) -> Region | None:
    if not isinstance(feature, dict) or not isinstance(feature.get("geometry"), dict | None):
        raise BadAnnotationError(f"{where}: is not a GeoJSON feature.")
    geometry_json, properties = feature.get("geometry") or {}, feature.get("properties")
    name = _class_name(properties) if isinstance(properties, dict) else None
    if geometry_json.get("type") not in AREAS or name is None:
        return None
    try:
        geometry = shapely.force_2d(shape(geometry_json))
    except (ValueError, KeyError, TypeError, IndexError, shapely.errors.ShapelyError) as error:
        raise BadAnnotationError(f"{where} (class {name!r}): its outline cannot be built: {error}.") from error
    return None if geometry.is_empty else Region(name, geometry, where)


def _class_name(properties: dict[str, Any]) -> str | None:
    classification = properties.get("classification")
    if isinstance(classification, str):
        return classification or None
    if isinstance(classification, dict):
        names = classification.get("names")
        name = classification.get("name") or (": ".join(map(str, names)) if isinstance(names, list) else None)
        return str(name) if name else None
    return None
