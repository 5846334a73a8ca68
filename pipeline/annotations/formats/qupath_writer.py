"""Writer of QuPath GeoJSON; qupath.py reads it."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shapely.geometry import mapping

from pipeline.annotations.formats.conversion_loss import lost_mpp
from pipeline.annotations.formats.geojson import classification, feature, write_features
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject
from training.foundation.words.counts import counted

_NAMESPACE = uuid.UUID("0d0f5a0c-3c7e-5c8b-9a55-5b5e6b8a4f10")


def write_qupath(path: Path, file: AnnotationFile) -> list[str]:
    """Write a FeatureCollection that QuPath opens.

    Returns:
        Losses: one sentence for each thing that QuPath cannot hold.
    """
    ids = _ids(file)
    write_features(path, _features_of(file, ids))
    notes = []
    new_ids = sum(obj.object_id not in (None, new) for obj, new in zip(file.objects, ids, strict=True))
    if new_ids:
        were = counted(
            new_ids, "id was not a UUID, or not unique, and was", "ids were not UUIDs, or not unique, and were"
        )
        notes.append(f"{were} replaced")
    nested = sum(group.parent is not None for group in file.groups)
    if nested:
        notes.append(
            f"{counted(nested, 'group is inside another', 'groups are inside others')}; QuPath's classes cannot nest"
        )
    tools = sum(obj.tool in ("spline", "rectangle", "measurement", "nothing") for obj in file.objects)
    if tools:
        keep = counted(tools, "object keeps its points", "objects keep their points")
        notes.append(f"{keep} but not the drawing tool")
    return notes + lost_mpp(file, "QuPath")


def qupath_features(file: AnnotationFile) -> Iterator[dict[str, Any]]:
    """The features of a FeatureCollection that QuPath opens."""
    return _features_of(file, _ids(file))


def _features_of(file: AnnotationFile, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    for object_id, obj in zip(ids, file.objects, strict=True):
        yield feature(
            _geometry_json(obj),
            object_id,
            obj.object_type,
            is_locked=obj.is_locked,
            nucleus=mapping(obj.nucleus) if obj.nucleus is not None else None,
            name=obj.name,
            color=list(obj.color_rgb) if obj.color_rgb else None,
            classification=_classification(obj, file),
            measurements={key: _finite(value) for key, value in obj.measurements.items()},
            metadata=dict(obj.metadata),
        )


def _classification(obj: AnnotationObject, file: AnnotationFile) -> dict[str, Any] | None:
    if obj.class_name is None:
        return None
    return classification(obj.class_name, file.class_colors.get(obj.class_name))


def _geometry_json(obj: AnnotationObject) -> dict[str, Any]:
    more: dict[str, Any] = {"plane": dict(obj.plane)} if obj.plane else {}
    return {**mapping(obj.geometry), **more, **({"isEllipse": True} if obj.tool == "ellipse" else {})}


def _ids(file: AnnotationFile) -> list[str]:
    """Each object's own id if it is a unique UUID; else one that stays the same for the same object."""
    ids: dict[str, None] = {}
    for index, obj in enumerate(file.objects):
        try:
            own = str(uuid.UUID(obj.object_id or ""))
        except ValueError:
            own = ""
        if not own or own in ids:
            own = str(uuid.uuid5(_NAMESPACE, f"{index}/{obj.class_name}/{obj.geometry.wkt}"))
        ids[own] = None
    return list(ids)


def _finite(value: Any) -> Any:
    """Spell out NaN and infinity, for which JSON has no number; QuPath reads the words."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
