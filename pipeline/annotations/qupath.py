"""QuPath GeoJSON: feature collections, bare lists of features, single features and bare geometries.

Format: QuPath's `QuPathTypeAdapters` (classification with `name` or `names`, or a bare string; colours as `color`,
before 0.4 as `colorRGB`; cells with `nucleusGeometry`). It holds all that the other formats can, but for ASAP's groups
of groups and the tool an outline was drawn with.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from shapely.geometry import MultiLineString, MultiPolygon, Polygon, mapping
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.geojson import classification, feature, write_features
from pipeline.annotations.objects import POINTS, AnnotationFile, AnnotationObject, ObjectType, Rgb, Tool
from pipeline.annotations.rings import area_of, corners_of, line_of, points_of
from pipeline.errors import BadAnnotationError

GEOMETRIES = ("Polygon", "MultiPolygon", "Point", "MultiPoint", "LineString", "MultiLineString", "GeometryCollection")
_NAMESPACE = uuid.UUID("0d0f5a0c-3c7e-5c8b-9a55-5b5e6b8a4f10")


@dataclass
class _Reading:
    """What gathers while the features go by."""

    objects: list[AnnotationObject] = field(default_factory=list)
    class_colors: dict[str, Rgb] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


def read_qupath(content: Any, file_name: str) -> AnnotationFile:
    """Every object of a QuPath export, in file order; children follow their parent.

    Args:
        content: the parsed JSON.

    Raises:
        BadAnnotationError: not GeoJSON, or a geometry that cannot be built.
    """
    reading = _Reading()
    for index, each in enumerate(_features(content, file_name)):
        _read_feature(each, f"{file_name}, feature {index}", reading)
    return AnnotationFile("qupath", tuple(reading.objects), reading.class_colors, dropped=tuple(reading.dropped))


def _features(content: Any, file_name: str) -> list[Any]:
    if isinstance(content, list):
        return content
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "FeatureCollection":
        features = content.get("features")
        if isinstance(features, list):
            return features
        raise BadAnnotationError(f"{file_name}: its `features` are {type(features).__name__}, not a list.")
    if kind == "Feature":
        return [content]
    if kind in GEOMETRIES:
        return [{"type": "Feature", "geometry": content, "properties": {}}]
    holds = f"type {kind!r}" if kind else type(content).__name__
    if isinstance(content, dict) and not kind:
        holds = f"an object with the keys {', '.join(map(str, list(content)[:6])) or '(none)'}"
    raise BadAnnotationError(
        f"{file_name}: is JSON but not GeoJSON: it holds {holds}, not a FeatureCollection, Feature, list of features "
        "or geometry. Export it from QuPath as GeoJSON."
    )


def _read_feature(each: Any, where: str, reading: _Reading) -> None:
    if not isinstance(each, dict) or not isinstance(each.get("geometry"), dict | None):
        raise BadAnnotationError(f"{where}: is not a GeoJSON feature.")
    found = each.get("properties")
    properties = found if isinstance(found, dict) else {}
    class_name = _class_name(properties.get("classification"))
    color = _color(properties.get("classification"))
    if class_name and color:
        reading.class_colors.setdefault(class_name, color)
    geometry_json = each.get("geometry") or {}
    for geometry in _geometries(geometry_json, where, reading):
        nucleus = each.get("nucleusGeometry") or properties.get("nucleusGeometry")
        plane = geometry_json.get("plane")
        reading.objects.append(
            AnnotationObject(
                geometry,
                where,
                class_name,
                name=_text(properties.get("name")),
                color_rgb=_color(properties),
                object_type=_object_type(properties),
                tool=_tool(geometry, geometry_json),
                nucleus=next(_geometries(nucleus, where, reading), None) if isinstance(nucleus, dict) else None,
                object_id=_text(each.get("id")),
                is_locked=properties.get("isLocked") is True,
                measurements=_measurements(properties.get("measurements")),
                metadata=_string_map(properties.get("metadata")),
                plane=plane if isinstance(plane, dict) else None,
            )
        )
    children = each.get("childObjects") or properties.get("childObjects")
    for index, child in enumerate(children if isinstance(children, list) else []):
        _read_feature(child, f"{where}, child {index}", reading)


def _geometries(geometry: Mapping[str, Any], where: str, reading: _Reading) -> Iterator[BaseGeometry]:
    """The shapes of a geometry: one, or those of a collection; none of an empty one."""
    kind, coordinates = geometry.get("type"), geometry.get("coordinates") or []
    if kind == "GeometryCollection":
        for member in _listed(geometry.get("geometries"), where):
            yield from _geometries(member if isinstance(member, dict) else {}, where, reading)
    elif kind in ("Polygon", "MultiPolygon"):
        polygons = [coordinates] if kind == "Polygon" else _listed(coordinates, where)
        area, dropped = area_of([[corners_of(r, where) for r in _listed(p, where)] for p in polygons], where)
        reading.dropped += dropped
        if area is not None:
            yield MultiPolygon([area]) if kind == "MultiPolygon" and isinstance(area, Polygon) else area
    elif kind == "MultiLineString":
        lines = [corners_of(line, where) for line in _listed(coordinates, where) if len(_listed(line, where)) > 1]
        if lines:
            yield MultiLineString(lines)
    elif kind in GEOMETRIES:
        corners = corners_of([coordinates] if kind == "Point" and coordinates else coordinates, where)
        if len(corners):
            yield line_of(corners) if kind == "LineString" else points_of(corners)
    elif kind is not None:
        raise BadAnnotationError(f"{where}: a geometry of type {kind!r}; known are {', '.join(GEOMETRIES)}.")


def read_geometry(geometry: Any, where: str) -> tuple[BaseGeometry | None, list[str]]:
    """The one shape of a parsed GeoJSON geometry; None where nothing is left of it, and why.

    Raises:
        BadAnnotationError: not a geometry, several in a collection, or one that cannot be built.
    """
    if not isinstance(geometry, dict) or geometry.get("type") not in GEOMETRIES[:-1]:
        raise BadAnnotationError(f"{where}: its geometry is none of {', '.join(GEOMETRIES[:-1])}.")
    reading = _Reading()
    return next(_geometries(geometry, where, reading), None), reading.dropped


def _listed(value: Any, where: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise BadAnnotationError(f"{where}: its outline cannot be built: {value!r} is not a list. Export the file again.")


def _class_name(found: Any) -> str | None:
    if isinstance(found, str):
        return found or None
    if isinstance(found, dict):
        names = found.get("names")
        name = found.get("name") or (": ".join(map(str, names)) if isinstance(names, list) else None)
        return str(name) if name else None
    return None


def _color(found: Any) -> Rgb | None:
    if not isinstance(found, dict):
        return None
    color = found.get("color", found.get("colorRGB"))
    if isinstance(color, int):  # packed, alpha above, negative when alpha is 255
        return color >> 16 & 255, color >> 8 & 255, color & 255
    if isinstance(color, list) and len(color) == 3 and all(isinstance(c, int) and 0 <= c < 256 for c in color):
        return color[0], color[1], color[2]
    return None


def _object_type(properties: Mapping[str, Any]) -> ObjectType:
    wanted = str(properties.get("objectType", properties.get("object_type", ""))).lower()
    kinds: tuple[ObjectType, ...] = get_args(ObjectType)
    return next((kind for kind in kinds if kind.lower() == wanted), "annotation")


def _tool(geometry: BaseGeometry, geometry_json: Mapping[str, Any]) -> Tool:
    if geometry.geom_type in POINTS:
        return "points"
    if "Line" in geometry.geom_type:
        return "line"
    return "ellipse" if geometry_json.get("isEllipse") is True else "freehand"


def _measurements(found: Any) -> dict[str, Any]:
    """Name to number; before 0.4 they were a list of name and value."""
    if isinstance(found, list):
        return {str(m["name"]): m.get("value") for m in found if isinstance(m, dict) and "name" in m}
    return dict(found) if isinstance(found, dict) else {}


def _string_map(found: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _text(found: Any) -> str | None:
    return found if isinstance(found, str) and found else None


def write_qupath(path: Path, file: AnnotationFile) -> list[str]:
    """Write a FeatureCollection that QuPath opens.

    Returns:
        What QuPath cannot hold, one sentence each.
    """
    ids = _ids(file)
    write_features(path, _features_of(file, ids))
    notes = []
    new_ids = sum(obj.object_id not in (None, new) for obj, new in zip(file.objects, ids, strict=True))
    if new_ids:
        notes.append(f"{new_ids} ids were not UUIDs, or stood twice, and were replaced")
    nested = sum(group.parent is not None for group in file.groups)
    if nested:
        notes.append(f"{nested} groups lie in other groups; QuPath's classes do not")
    tools = sum(obj.tool in ("spline", "rectangle", "measurement", "nothing") for obj in file.objects)
    if tools:
        notes.append(f"{tools} objects keep their points but not the tool they were drawn with")
    return notes


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
    """Each object's own id where it is a UUID nobody else has; else one that stays the same for the same object."""
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
    """JSON has no number for these; QuPath reads the words."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
