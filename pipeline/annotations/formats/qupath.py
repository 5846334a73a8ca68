"""QuPath GeoJSON: feature collections (also nested), lists of features, single features and bare geometries.

Format: QuPath's `QuPathTypeAdapters` (classification with `name` or `names`, or a bare string; colours as `color`,
before 0.4 as `colorRGB`; cells with `nucleusGeometry`). It holds everything that the other formats can, except ASAP's
nested groups and the tool an outline was drawn with.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from shapely.geometry import MultiLineString, MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.formats.foreign_class import foreign_class
from pipeline.annotations.formats.unread import Unread, in_other_capitals
from pipeline.annotations.shapes.objects import POINTS, AnnotationFile, AnnotationObject, ObjectType, Rgb, Tool
from pipeline.annotations.shapes.rings import area_of, corners_of, line_of, points_of
from pipeline.errors import BadAnnotationError
from training.foundation.words.counts import counted

GEOMETRIES = ("Polygon", "MultiPolygon", "Point", "MultiPoint", "LineString", "MultiLineString", "GeometryCollection")
_TYPES = (*GEOMETRIES, "Feature", "FeatureCollection")
PROPERTIES = frozenset(
    {"objectType", "object_type", "type", "classification", "name", "color", "colorRGB", "isLocked", "measurements"}
    | {"metadata", "nucleusGeometry", "childObjects", "plane", "isEllipse"}
)
"""Properties of a feature that QuPath writes or has written."""
_COLLECTION = frozenset({"type", "features", "bbox", "crs"})
_FEATURE = frozenset({"type", "id", "geometry", "properties", "bbox", "crs", "nucleusGeometry", "childObjects"})
_GEOMETRY = frozenset({"type", "coordinates", "geometries", "bbox", "crs", "plane", "isEllipse"})
MAX_NOTES = 8
_CLASSIFICATION = frozenset({"name", "names", "color", "colorRGB"})
_OLD_TYPES: dict[str, ObjectType] = {
    "pathannotationobject": "annotation",
    "pathdetectionobject": "detection",
    "pathcellobject": "cell",
    "pathtileobject": "tile",
    "tmacoreobject": "tmaCore",
    "pathrootobject": "root",
}
"""Before 0.3, QuPath wrote an object's type in place of its id."""
_NEW_TYPES: tuple[ObjectType, ...] = get_args(ObjectType)
_KINDS = {kind.lower(): kind for kind in _NEW_TYPES} | _OLD_TYPES


@dataclass
class _Reading:
    """Everything collected while the features are read."""

    objects: list[AnnotationObject] = field(default_factory=list)
    class_colors: dict[str, Rgb] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    """Features by unknown property."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Features by the property of another program that names their class."""
    unread: Unread = field(default_factory=lambda: Unread("QuPath"))
    """Unknown members of collections, features and geometries."""


def read_qupath(content: Any, file_name: str) -> AnnotationFile:
    """Every object of a QuPath export, in file order; children follow their parent.

    Args:
        content: the parsed JSON.

    Raises:
        BadAnnotationError: not GeoJSON, or a geometry that cannot be built.
    """
    reading = _Reading()
    for item, where in _features(content, file_name, reading):
        _read_feature(item, where, reading)
    return AnnotationFile(
        "qupath",
        tuple(reading.objects),
        reading.class_colors,
        dropped=tuple(reading.dropped),
        notes=tuple(
            f"{count} features have a property {key!r:.60}, which QuPath does not write: it is left out"
            for key, count in sorted(reading.unknown.items())[:MAX_NOTES]
        )
        + reading.unread.notes()
        + tuple(
            f"{counted(count, 'feature names its class', 'features name their class')} in the property {key!r:.60}, "
            "not in `classification` as in QuPath: read as the class"
            for key, count in sorted(reading.foreign.items())
        ),
    )


def _features(content: Any, where: str, reading: _Reading) -> Iterator[tuple[Any, str]]:
    """Every feature and its position, also from nested collections. Raises BadAnnotationError."""
    waiting = [(content, False)]
    count = itertools.count()
    while waiting:
        item, is_member = waiting.pop()
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(item, list):
            waiting += [(member, True) for member in reversed(item)]
        elif kind == "FeatureCollection":
            features = item.get("features")
            if not isinstance(features, list):
                raise BadAnnotationError(f"{where}: its `features` are {type(features).__name__}, not a list.")
            _check_crs(item, where)
            _check_members(item, ("features",), where)
            reading.unread.meet(item, _COLLECTION, "collections", where)
            waiting += [(member, True) for member in reversed(features)]
        elif kind in GEOMETRIES and "geometry" not in item:
            yield {"type": "Feature", "geometry": item, "properties": {}}, f"{where}, feature {next(count)}"
        elif isinstance(item, dict) and (kind == "Feature" or (kind is None and "geometry" in item)):
            yield item, f"{where}, feature {next(count)}"
        else:
            raise _not_geojson(item, f"{where}, feature {next(count)}" if is_member else where)


def _check_crs(collection: Mapping[str, Any], where: str) -> None:
    crs = collection.get("crs")
    if crs is not None:
        raise BadAnnotationError(
            f"{where}: states a geographic coordinate system (crs {crs!r:.120}); annotations must be in level-0 pixels "
            "from the top left. Export it from QuPath as GeoJSON, or delete `crs` if these are pixels."
        )


def _check_members(item: Mapping[str, Any], read: Sequence[str], where: str) -> None:
    """Refuse shapes in members that QuPath does not write: they would be lost.

    Raises:
        BadAnnotationError: a member other than those in `read` holds GeoJSON, or a list of it.
    """
    for key, value in item.items():
        first = value[0] if isinstance(value, list) and value else value
        if key not in read and isinstance(first, dict) and first.get("type") in _TYPES:
            raise BadAnnotationError(
                f"{where}: its member {key!r:.60} holds GeoJSON ({first['type']}), where QuPath writes none; its "
                "meaning is unknown. Export the objects from QuPath as GeoJSON."
            )


def _not_geojson(item: Any, where: str) -> BadAnnotationError:
    kind = item.get("type") if isinstance(item, dict) else None
    holds = f"type {kind!r:.80}" if kind else type(item).__name__
    if isinstance(item, dict) and not kind:
        holds = f"an object with the keys {', '.join(f'{key!s:.40}' for key in list(item)[:6]) or '(none)'}"
    return BadAnnotationError(
        f"{where}: is JSON but not GeoJSON: it holds {holds}, not a FeatureCollection, Feature, list of features "
        "or geometry. Export it from QuPath as GeoJSON."
    )


def _read_feature(item: Any, where: str, reading: _Reading) -> None:
    if not isinstance(item, dict) or not isinstance(item.get("geometry"), dict | None):
        raise BadAnnotationError(f"{where}: is not a GeoJSON feature.")
    _check_crs(item, where)
    _check_members(item, ("geometry", "nucleusGeometry", "childObjects", "properties"), where)
    properties = item.get("properties") or {}
    if not isinstance(properties, dict):
        raise BadAnnotationError(f"{where}: its `properties` are {type(properties).__name__}, not an object.")
    reading.unread.meet(item, _FEATURE, "features", where)
    class_name = _class_name(properties.get("classification"), where)
    foreign = None if class_name else foreign_class(properties, where)
    if foreign:
        key, class_name = foreign
        reading.foreign[key] += 1
        properties = {name: value for name, value in properties.items() if name != key}
    _note_properties(properties, where, reading)
    color = _color(properties.get("classification"))
    if class_name and color:
        reading.class_colors.setdefault(class_name, color)
    geometry_json = item.get("geometry") or {}
    if not geometry_json and not _children(item, properties, where):
        reading.dropped.append(f"{where}: has no geometry")
    for geometry in _geometries(geometry_json, where, reading) if geometry_json else ():
        nucleus = item.get("nucleusGeometry") or properties.get("nucleusGeometry")
        plane = geometry_json.get("plane")
        reading.objects.append(
            AnnotationObject(
                geometry,
                where,
                class_name,
                name=_text(properties.get("name")),
                color_rgb=_color(properties),
                object_type=_object_type(item, properties, where),
                tool=_tool(geometry, geometry_json),
                nucleus=next(_geometries(nucleus, where, reading), None) if isinstance(nucleus, dict) else None,
                object_id=_text(item.get("id")),
                is_locked=properties.get("isLocked") is True,
                measurements=_measurements(properties.get("measurements")),
                metadata=_string_map(properties.get("metadata")),
                plane=plane if isinstance(plane, dict) else None,
            )
        )
    for index, child in enumerate(_children(item, properties, where)):
        _read_feature(child, f"{where}, child {index}", reading)


def _note_properties(properties: Mapping[str, Any], where: str, reading: _Reading) -> None:
    """Count what is not read. Raises BadAnnotationError: a property of QuPath's in other capitals."""
    for key in properties:
        meant = None if key in PROPERTIES else in_other_capitals(key, PROPERTIES)
        if meant:
            raise BadAnnotationError(
                f"{where}: has a property {key!r:.60}; QuPath writes {meant!r}. Export it from QuPath as GeoJSON."
            )
    reading.unknown.update(key for key in properties if key not in PROPERTIES)
    if properties.get("type") is not None and str(properties["type"]).lower() not in _KINDS:
        reading.unknown["type"] += 1
    classification = properties.get("classification")
    if isinstance(classification, dict):
        reading.unknown.update(f"classification.{key}" for key in classification if key not in _CLASSIFICATION)


def _children(item: Mapping[str, Any], properties: Mapping[str, Any], where: str) -> list[Any]:
    children = item.get("childObjects") or properties.get("childObjects") or []
    if not isinstance(children, list):
        raise BadAnnotationError(f"{where}: its `childObjects` are {type(children).__name__}, not a list.")
    return children


def _geometries(geometry: Mapping[str, Any], where: str, reading: _Reading) -> Iterator[BaseGeometry]:
    """The shapes of a geometry: one, or those of a collection; an empty one has none, which is reported."""
    kind, coordinates = geometry.get("type"), geometry.get("coordinates") or []
    _check_crs(geometry, where)
    _check_members(geometry, ("geometries",), where)
    reading.unread.meet(geometry, _GEOMETRY, "geometries", where)
    if kind == "GeometryCollection":
        yield from _members(_listed(geometry.get("geometries"), where), where, reading)
    elif kind in ("Polygon", "MultiPolygon"):
        polygons = [coordinates] if kind == "Polygon" else _listed(coordinates, where)
        area, dropped = area_of([[corners_of(r, where) for r in _listed(p, where)] for p in polygons], where)
        reading.dropped += dropped
        if area is not None:
            yield MultiPolygon([area]) if kind == "MultiPolygon" and isinstance(area, Polygon) else area
    elif kind == "MultiLineString":
        yield from _lines(_listed(coordinates, where), where, reading)
    elif kind in GEOMETRIES:
        corners = corners_of([coordinates] if kind == "Point" and coordinates else coordinates, where)
        if len(corners):
            yield line_of(corners) if kind == "LineString" else points_of(corners)
        else:
            reading.dropped.append(f"{where}: has no points")
    else:
        raise BadAnnotationError(f"{where}: unknown geometry type {kind!r:.80}; known are {', '.join(GEOMETRIES)}.")


def _members(members: list[Any], where: str, reading: _Reading) -> Iterator[BaseGeometry]:
    if not members:
        reading.dropped.append(f"{where}: has no points")
    for member in members:
        if not isinstance(member, dict):
            raise BadAnnotationError(f"{where}: a member of its collection is not a geometry, but {member!r:.80}.")
        yield from _geometries(member, where, reading)


def _lines(lines: list[Any], where: str, reading: _Reading) -> Iterator[BaseGeometry]:
    parts = [_listed(line, where) for line in lines]
    short = sum(len(line) < 2 for line in parts)
    if short or not parts:
        of_its = counted(short, "of its lines has", "of its lines have") if short else "all of its lines have"
        reading.dropped.append(f"{where}: {of_its} fewer than two points")
    if len(parts) > short:
        yield MultiLineString([corners_of(line, where) for line in parts if len(line) > 1])


def read_geometry(geometry: Any, where: str) -> tuple[BaseGeometry | None, list[str]]:
    """The shape of a parsed GeoJSON geometry, or None if nothing is left of it, and why.

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


def _class_name(classification: Any, where: str) -> str | None:
    """A class, from text, `name` or `names`. Raises BadAnnotationError: something else."""
    if classification is None or isinstance(classification, str):
        return classification or None
    if isinstance(classification, dict):
        name, names = classification.get("name"), classification.get("names")
        if name is None and isinstance(names, list) and all(isinstance(part, str) for part in names):
            name = ": ".join(names)
        is_nameless = name is None and not names and _CLASSIFICATION.issuperset(classification)
        if isinstance(name, str | int) or is_nameless:
            return None if name is None else str(name) or None
    raise BadAnnotationError(
        f"{where}: its `classification` is {classification!r:.80}, which does not name a class as QuPath does."
    )


def _color(fields: Any) -> Rgb | None:
    if not isinstance(fields, dict):
        return None
    color = fields.get("color", fields.get("colorRGB"))
    if isinstance(color, int):  # packed ARGB, negative when alpha is 255
        return color >> 16 & 255, color >> 8 & 255, color & 255
    if isinstance(color, list) and len(color) == 3 and all(isinstance(c, int) and 0 <= c < 256 for c in color):
        return color[0], color[1], color[2]
    return None


def _object_type(item: Mapping[str, Any], properties: Mapping[str, Any], where: str) -> ObjectType:
    """Type of a feature's object; an annotation if it names none. Raises BadAnnotationError: an unknown type."""
    for key in ("objectType", "object_type"):
        stated = properties.get(key)
        if stated is not None:
            kind = _KINDS.get(str(stated).lower())
            if kind is None:
                raise BadAnnotationError(
                    f"{where}: {key} {stated!r:.80} is unknown; QuPath has {', '.join(get_args(ObjectType))}."
                )
            return kind
    others = (properties.get("type"), item.get("id"))
    return next((_KINDS[str(other).lower()] for other in others if str(other).lower() in _KINDS), "annotation")


def _tool(geometry: BaseGeometry, geometry_json: Mapping[str, Any]) -> Tool:
    if geometry.geom_type in POINTS:
        return "points"
    if "Line" in geometry.geom_type:
        return "line"
    return "ellipse" if geometry_json.get("isEllipse") is True else "freehand"


def _measurements(value: Any) -> dict[str, Any]:
    """Numbers by name; before 0.4, QuPath wrote a list of names and values."""
    if isinstance(value, list):
        return {str(m["name"]): m.get("value") for m in value if isinstance(m, dict) and "name" in m}
    return dict(value) if isinstance(value, dict) else {}


def _string_map(fields: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in fields.items()} if isinstance(fields, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
