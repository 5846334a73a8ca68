"""NDPA, the annotation files of Hamamatsu's NDP.view beside `.ndpi` slides: XML, in nanometres.

Format, from files of the program: `<annotations>` of `<ndpviewstate>`, each with a `<title>`, `<details>`, the unit
`<coordformat>` and one `<annotation type=… color="#rrggbb">`: freehand (a `<pointlist>`; `<closed>` 1 or 0,
`<specialtype>` rectangle), circle (`<x>`, `<y>`, `<radius>`), linearmeasure and pointer (`<x1>` … `<y2>`), pin (`<x>`,
`<y>`).

Coordinates are measured from the centre of the glass slide; frames.py places them on a slide. The title is the class;
without a title, the colour is.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable

from shapely.geometry.base import BaseGeometry

from pipeline.annotations.formats.unread import unread_attributes
from pipeline.annotations.formats.xml_ import check_children, hex_of_rgb, rgb_of_hex, text_number
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject, Rgb, Tool
from pipeline.annotations.shapes.rings import area_of, corners_of, ellipse_within, line_of, points_of, rectangle_around
from pipeline.errors import BadAnnotationError

ROOT = "annotations"
PROGRAM = "NDP.view (NDPA)"
_STATE = (
    "title", "details", "coordformat", "lens", "x", "y", "z", "showtitle", "showhistogram", "showlineprofile",
    "annotation",
)  # fmt: skip
_ANNOTATION = (
    "measuretype", "closed", "specialtype", "pointlist", "x", "y", "z", "radius", "x1", "y1", "x2", "y2", "text",
    "fontsize", "font",
)  # fmt: skip
_ATTRIBUTES = {
    **dict.fromkeys((ROOT, "pointlist", "point"), frozenset[str]()),
    "ndpviewstate": frozenset({"id"}),
    "annotation": frozenset({"type", "displayname", "color"}),
}
_CLOSED = {"1": True, "true": True, "0": False, "false": False}

_Shape = tuple[BaseGeometry | None, Tool, list[str]]


def read_ndpa(root: ET.Element, file_name: str) -> AnnotationFile:
    """Every annotation, in file order, in nanometres from the centre of the glass slide.

    Raises:
        BadAnnotationError: an element or type that NDP.view does not write, an attribute that may state a class but is
            unknown, two values for one, another unit, or a coordinate that is not a number.
    """
    check_children(root, ("ndpviewstate",), file_name, PROGRAM)
    notes = unread_attributes(root, _ATTRIBUTES, file_name, PROGRAM)
    objects: list[AnnotationObject] = []
    dropped: list[str] = []
    colors: dict[str, Rgb] = {}
    for index, state in enumerate(root):
        obj, why = _read_state(state, f"{file_name}, view {index}")
        dropped += why
        if obj is not None:
            objects.append(obj)
            if obj.class_name and obj.color_rgb:
                colors.setdefault(obj.class_name, obj.color_rgb)
    return AnnotationFile("ndpa", tuple(objects), colors, dropped=tuple(dropped), notes=notes, unit="nm")


def _read_state(state: ET.Element, where: str) -> tuple[AnnotationObject | None, list[str]]:
    check_children(state, _STATE, where, PROGRAM)
    annotations = state.findall("annotation")
    if not annotations:
        return None, [f"{where}: has no annotation"]
    if len(annotations) > 1:
        raise BadAnnotationError(f"{where}: has {len(annotations)} annotations; {PROGRAM} writes one. Export it again.")
    (annotation,) = annotations
    _check_stated_once(state, where)
    _check_stated_once(annotation, where)
    unit = state.findtext("coordformat", "").strip().lower()
    if unit != "nanometers":
        raise BadAnnotationError(
            f"{where}: the unit of its coordinates (<coordformat>) is {unit or 'not stated'!r:.40}; {PROGRAM} writes "
            "nanometers. Export it again."
        )
    check_children(annotation, _ANNOTATION, where, PROGRAM)
    kind = annotation.get("type", "")
    if kind.lower() not in _SHAPES:
        raise BadAnnotationError(
            f"{where}: annotation type {kind!r:.80} is not supported; types of {PROGRAM} that are: "
            f"{', '.join(_SHAPES)}. Export it as one of them."
        )
    geometry, tool, dropped = _SHAPES[kind.lower()](annotation, where)
    if geometry is None:
        return None, dropped
    color = rgb_of_hex(annotation.get("color"))
    title = state.findtext("title", "").strip()
    class_name = title or (hex_of_rgb(color) if color else None)
    name = " ".join(state.findtext("details", "").split()) or None
    return AnnotationObject(geometry, where, class_name, name, color, tool=tool), dropped


def _check_stated_once(parent: ET.Element, where: str) -> None:
    for tag, count in Counter(child.tag for child in parent if child.tag != "pointlist").items():
        if count > 1:
            raise BadAnnotationError(f"{where}: states <{tag}> {count} times; {PROGRAM} writes one. Export it again.")


def _freehand(annotation: ET.Element, where: str) -> _Shape:
    lists = annotation.findall("pointlist")
    if len(lists) != 1:
        raise BadAnnotationError(f"{where}: has {len(lists)} lists of points; {PROGRAM} writes one. Export it again.")
    check_children(lists[0], ("point",), where, PROGRAM)
    points = [(text_number(point, "x", where), text_number(point, "y", where)) for point in lists[0]]
    corners = corners_of(points, where)
    if not len(corners):
        return None, "freehand", [f"{where}: has no points"]
    closed = annotation.findtext("closed", "").strip().lower()
    special = annotation.findtext("specialtype", "").strip().lower()
    if closed not in _CLOSED or special not in ("", "none", "rectangle"):
        raise BadAnnotationError(
            f"{where}: <closed> is {closed!r:.40} and <specialtype> {special!r:.40}; {PROGRAM} writes 1 or 0, and "
            "rectangle or nothing. Export it again."
        )
    if not _CLOSED[closed] and special != "rectangle":
        return line_of(corners), "line", []
    area, dropped = area_of([[corners]], where)
    return area, "rectangle" if special == "rectangle" else "freehand", dropped


def _circle(annotation: ET.Element, where: str) -> _Shape:
    x, y, radius = (text_number(annotation, tag, where) for tag in ("x", "y", "radius"))
    box = rectangle_around(corners_of([(x - radius, y - radius), (x + radius, y + radius)], where))
    area, dropped = area_of([[ellipse_within(box)]], where)
    return area, "ellipse", dropped


def _line(annotation: ET.Element, where: str) -> _Shape:
    ends = [[text_number(annotation, f"{axis}{end}", where) for axis in "xy"] for end in (1, 2)]
    tool: Tool = "measurement" if annotation.get("type", "").lower() == "linearmeasure" else "line"
    return line_of(corners_of(ends, where)), tool, []


def _pin(annotation: ET.Element, where: str) -> _Shape:
    return points_of(corners_of([[text_number(annotation, axis, where) for axis in "xy"]], where)), "points", []


_SHAPES: dict[str, Callable[[ET.Element, str], _Shape]] = {
    "freehand": _freehand,
    "circle": _circle,
    "linearmeasure": _line,
    "pointer": _line,
    "pin": _pin,
}
