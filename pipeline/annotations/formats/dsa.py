"""Annotations of the Digital Slide Archive (HistomicsUI, HistomicsTK), as JSON: documents that hold elements.

Format: the annotation schema of girder's large_image_annotation. A file holds one document or a list; each is the
annotation itself, or wraps it as `annotation`, as the server lists it. An element's class is its `group`; if it has
none, or "default", its label; failing that, the document's name. `rotation` is in radians, from x to y (downwards).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import shapely
from shapely.affinity import rotate
from shapely.geometry import Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.formats.unread import Unread
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject, Rgb, Tool
from pipeline.annotations.shapes.rings import area_of, corners_of, ellipse_within, line_of, points_of, rectangle_around
from pipeline.errors import BadAnnotationError

PROGRAM = "the Digital Slide Archive (HistomicsTK)"
DEFAULT_GROUP = "default"
NOT_DRAWN = ("heatmap", "griddata", "image", "pixelmap", "rectanglegrid")
"""Elements that are overlaid on a slide and outline nothing."""
_COMMON = ("type", "id", "label", "group", "lineColor", "lineWidth", "fillColor")
_BOX = ("center", "width", "height", "rotation", "normal")
_KEYS = {
    "polyline": {*_COMMON, "points", "closed", "holes"},
    "rectangle": {*_COMMON, *_BOX},
    "circle": {*_COMMON, "center", "radius"},
    "ellipse": {*_COMMON, *_BOX},
    "point": {*_COMMON, "center"},
    "arrow": {*_COMMON, "points"},
}
"""Keys of each type of element, without `user`, which is not read."""
_DOCUMENT = {"name", "elements", "display"}
_WRAPPER = {
    "annotation", "groups", "_id", "_version", "_modelType", "_accessLevel", "_elementQuery", "itemId", "created",
    "creatorId", "updated", "updatedId", "public", "publicFlags", "access", "active",
}  # fmt: skip
"""What the server adds around a document."""
_OFTEN_EMPTY = ("description", "attributes")
_LABEL = {"value", "visibility", "fontSize", "color"}
_HEX = re.compile(r"#([0-9a-f]{3}|[0-9a-f]{4}|[0-9a-f]{6}|[0-9a-f]{8})", re.IGNORECASE)
_RGB = re.compile(r"rgba?\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*(?:,\s*[0-9.]+%?\s*)?\)", re.IGNORECASE)


@dataclass
class _Reading:
    """Everything collected while the elements are read."""

    objects: list[AnnotationObject] = field(default_factory=list)
    class_colors: dict[str, Rgb] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    not_drawn: Counter[str] = field(default_factory=Counter)
    unread: Unread = field(default_factory=lambda: Unread(PROGRAM))


def is_dsa(content: Any) -> bool:
    """Whether a parsed JSON is such a document, or a list of them."""
    documents = content if isinstance(content, list) else [content]
    return bool(documents) and any(_unwrap(document) is not None for document in documents)


def _unwrap(item: Any) -> Mapping[str, Any] | None:
    """The annotation in an item that the server lists or exports; None for anything else."""
    if not isinstance(item, dict) or "type" in item:
        return None
    inner = item.get("annotation", item)
    return inner if isinstance(inner, dict) and ("annotation" in item or "elements" in inner) else None


def read_dsa(content: Any, file_name: str) -> AnnotationFile:
    """Every element that outlines something, in file order.

    Raises:
        BadAnnotationError: an element that the schema does not have, whose values do not follow it, or with a key that
            may state a class or a sign but is unknown.
    """
    reading = _Reading()
    documents = content if isinstance(content, list) else [content]
    for number, item in enumerate(documents):
        where = f"{file_name}, annotation {number}" if isinstance(content, list) else file_name
        document = _unwrap(item)
        if document is None:
            raise BadAnnotationError(f"{where}: is not an annotation of {PROGRAM}, unlike others in its list.")
        if document is not item:
            reading.unread.meet(item, _WRAPPER, "documents of the server", where)
        filled = [key for key, value in document.items() if key not in _OFTEN_EMPTY or value]
        reading.unread.meet(filled, _DOCUMENT, "documents", where)
        elements = document.get("elements")
        if not isinstance(elements, list):
            raise _wrong(
                where,
                "has no list of `elements` (the server's annotation list omits them: download each annotation)",
            )
        for index, element in enumerate(elements):
            _read_element(element, document, f"{where}, element {index}", reading)
    notes = tuple(
        f"{count} elements of type {kind!r} are overlays that outline nothing: they are left out"
        for kind, count in reading.not_drawn.items()
    )
    return AnnotationFile(
        "dsa",
        tuple(reading.objects),
        reading.class_colors,
        dropped=tuple(reading.dropped),
        notes=notes + reading.unread.notes(),
    )


def _wrong(where: str, problem: str) -> BadAnnotationError:
    return BadAnnotationError(f"{where}: {problem}; {PROGRAM} does not write this. Export it again.")


def _read_element(element: Any, document: Mapping[str, Any], where: str, reading: _Reading) -> None:
    if not isinstance(element, dict):
        raise _wrong(where, f"is {type(element).__name__}, not an object")
    kind = element.get("type")
    if not isinstance(kind, str):
        raise _wrong(where, f"its `type` is {kind!r:.80}, not text")
    if kind in NOT_DRAWN:
        reading.not_drawn[kind] += 1
        return
    if kind not in _SHAPES:
        raise BadAnnotationError(
            f"{where}: unknown element type {kind!r:.80}; {PROGRAM} has {', '.join((*_SHAPES, *NOT_DRAWN))}."
        )
    reading.unread.meet(element, _KEYS[kind], "elements", where)
    label = _label(element, where)
    reading.unread.meet(element.get("label") or (), _LABEL, "labels of elements", where)
    geometry, tool, dropped = _SHAPES[kind](element, where)
    reading.dropped += dropped
    if geometry is None:
        return
    group, document_name = _text(element, "group", where), _text(document, "name", where)
    stated = None if _is_default(group) else group
    class_name = stated or label or document_name or group
    color = _color(element, where)
    if class_name and color:
        reading.class_colors.setdefault(class_name, color)
    reading.objects.append(
        AnnotationObject(
            geometry,
            where,
            class_name,
            name=label if label != class_name else None,
            color_rgb=color if color != reading.class_colors.get(class_name or "") else None,
            tool=tool,
            object_id=_text(element, "id", where),
        )
    )


def _is_default(group: str | None) -> bool:
    """Whether a group is the one that HistomicsUI gives to every element, which says nothing about its class."""
    return group is not None and group.strip().casefold() == DEFAULT_GROUP


def _text(fields: Mapping[str, Any], key: str, where: str) -> str | None:
    value = fields.get(key)
    if not isinstance(value, str | None):
        raise _wrong(where, f"its `{key}` is {value!r:.80}, not text")
    return value or None


def _label(element: Mapping[str, Any], where: str) -> str | None:
    label = element.get("label")
    if not isinstance(label, dict | None):
        raise _wrong(where, f"its `label` is {label!r:.80}, not an object")
    return _text(label, "value", where) if label else None


def _color(element: Mapping[str, Any], where: str) -> Rgb | None:
    text = _text(element, "lineColor", where) or _text(element, "fillColor", where)
    if text is None:
        return None
    if match := _HEX.fullmatch(text.strip()):
        digits = match[1] if len(match[1]) > 4 else "".join(digit * 2 for digit in match[1])
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)
    if match := _RGB.fullmatch(text.strip()):
        red, green, blue = (min(255, int(part)) for part in match.groups()[:3])
        return red, green, blue
    raise _wrong(where, f"the colour {text!r:.80} is neither #RRGGBB nor rgb(r, g, b)")


_Shape = tuple[BaseGeometry | None, Tool, list[str]]


def _number(element: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = element.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise _wrong(where, f"its `{key}` is {value!r:.80}, not a number")
    return float(value)


def _size(element: Mapping[str, Any], key: str, where: str) -> float:
    value = _number(element, key, where)
    if not 0 <= value < 1e9:
        raise _wrong(where, f"its `{key}` is {value:g}")
    return value


def _box(element: Mapping[str, Any], width: float, height: float, where: str) -> Polygon:
    ((x, y),) = corners_of([element.get("center", [])], where)
    box: Polygon = shapely.box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return box


def _turned(element: Mapping[str, Any], shape: Polygon, box: Polygon, where: str) -> tuple[Polygon, bool]:
    """The shape rotated about the centre of its box; whether it is upright."""
    if element.get("normal", [0, 0, 1]) not in ([0, 0, 1], [0.0, 0.0, 1.0]):
        raise _wrong(where, f"its `normal` is {element['normal']!r:.80}: it is not in the image plane")
    angle = _number(element, "rotation", where, default=0.0)
    return (rotate(shape, angle, origin=box.centroid, use_radians=True) if angle else shape), not angle


def _rectangle(element: Mapping[str, Any], where: str) -> _Shape:
    box = _box(element, _size(element, "width", where), _size(element, "height", where), where)
    if not box.area:
        return None, "rectangle", [f"{where}: rectangle has no area"]
    corners = rectangle_around(shapely.get_coordinates(box))
    turned, _ = _turned(element, Polygon(corners), box, where)
    return turned, "rectangle", []


def _ellipse(element: Mapping[str, Any], where: str) -> _Shape:
    box = _box(element, _size(element, "width", where), _size(element, "height", where), where)
    if not box.area:
        return None, "ellipse", [f"{where}: ellipse has no area"]
    turned, upright = _turned(element, Polygon(ellipse_within(shapely.get_coordinates(box))), box, where)
    return turned, "ellipse" if upright else "freehand", []


def _circle(element: Mapping[str, Any], where: str) -> _Shape:
    side = 2 * _size(element, "radius", where)
    return _ellipse({**element, "width": side, "height": side, "rotation": 0.0, "normal": [0, 0, 1]}, where)


def _point(element: Mapping[str, Any], where: str) -> _Shape:
    return points_of(corners_of([element.get("center", [])], where)), "points", []


def _arrow(element: Mapping[str, Any], where: str) -> _Shape:
    return line_of(corners_of(_points(element, where), where)), "line", []


def _polyline(element: Mapping[str, Any], where: str) -> _Shape:
    closed, points = element.get("closed", False), _points(element, where)
    if not isinstance(closed, bool):
        raise _wrong(where, f"its `closed` is {closed!r:.80}, neither true nor false")
    holes = element.get("holes") or []
    if not isinstance(holes, list):
        raise _wrong(where, f"its `holes` are {type(holes).__name__}, not a list")
    if not closed and holes:
        raise _wrong(where, "is an open line with holes")
    if not closed:
        return line_of(corners_of(points, where)), "line", []
    area, dropped = area_of([[corners_of(ring, where) for ring in (points, *holes)]], where)
    return area, "freehand", dropped


def _points(element: Mapping[str, Any], where: str) -> Sequence[Any]:
    points = element.get("points")
    if not isinstance(points, list) or not points:
        raise _wrong(where, "has no list of `points`")
    return points


_SHAPES: dict[str, Callable[[Mapping[str, Any], str], _Shape]] = {
    "polyline": _polyline,
    "rectangle": _rectangle,
    "circle": _circle,
    "ellipse": _ellipse,
    "point": _point,
    "arrow": _arrow,
}
