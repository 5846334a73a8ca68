"""XML annotation layers, `<Annotations>` of ImageScope and HALO: regions with types, some of them negative.

ImageScope, from files of the program: Region Type 0 is freehand, 1 a rectangle, 2 an ellipse (both given by the corners
of their box; traced outlines may also be type 1, recognised by their many points), 3 and 4 are open lines. Polygons are
not closed. LineColor packs blue above green above red: MoNuSAC's layers are red 255, yellow 65535, blue 16711680.

HALO, from files of the program and from pyhaloxml: the same layers, but corners are `<V>`, types are words, and a
rectangle, an ellipse or a ruler is given by two points. Other programs write ImageScope's elements with HALO's words,
so either spelling is accepted for both; a word or element that neither has is an error.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from shapely.geometry.base import BaseGeometry

from pipeline.annotations.formats.unread import unread_attributes
from pipeline.annotations.formats.xml_ import check_children, hex_of_rgb, number
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject, Format, Rgb, Tool
from pipeline.annotations.shapes.regions_cut import Layer, cut_out
from pipeline.annotations.shapes.rings import (
    Corners,
    area_of,
    corners_of,
    ellipse_within,
    line_of,
    points_of,
    rectangle_around,
)
from pipeline.errors import BadAnnotationError

ROOT = "Annotations"
DEFAULT_HEADER = "Description"
"""The attribute that ImageScope gives every layer; only its value can be informative."""
PROGRAMS = "ImageScope or HALO"
_TOOLS: dict[str, Tool] = {
    **{"0": "freehand", "1": "rectangle", "2": "ellipse", "3": "line", "4": "measurement"},
    **{"polygon": "freehand", "freehand": "freehand", "rectangle": "rectangle", "ellipse": "ellipse"},
    **{"ruler": "measurement", "arrow": "line", "line": "line", "polyline": "line", "pin": "points", "point": "points"},
}
_LAYER = (
    "Id", "Name", "ReadOnly", "NameReadOnly", "LineColorReadOnly", "Incremental", "Type", "LineColor", "Visible",
    "Selected", "MarkupImagePath", "MacroName",
)  # fmt: skip
_REGION = (
    "Id", "Type", "Zoom", "Selected", "ImageLocation", "ImageFocus", "Length", "Area", "LengthMicrons", "AreaMicrons",
    "Text", "NegativeROA", "InputRegionId", "Analyze", "DisplayId", "HasEndcaps",
)  # fmt: skip
ATTRIBUTES = {
    ROOT: frozenset({"MicronsPerPixel"}),
    "Annotation": frozenset(_LAYER),
    "Attributes": frozenset[str](),
    "Attribute": frozenset({"Id", "Name", "Value"}),
    "Regions": frozenset[str](),
    "Region": frozenset(_REGION),
    "Vertices": frozenset[str](),
    "Comment": frozenset({"Author", "Body", "CreatedTime", "ModifiedTime"}),
}
"""Attributes of each element that either program writes."""
_CHILDREN = {"Attributes": ("Attribute",), "Plots": (), "Regions": ("Region", "RegionAttributeHeaders")}
"""Children of a layer's children."""
_NEGATIVE = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


def read_layers(root: ET.Element, file_name: str) -> AnnotationFile:
    """Every region, in file order; negative regions are cut out of the regions of their layer.

    Raises:
        BadAnnotationError: an element, type or value that neither program writes, an attribute that may state a class
            or a sign but is unknown, a coordinate or colour that is not a number, a negative region that overlaps
            nothing in its layer but lies in another, or outlines that cross too often.
    """
    check_children(root, ("Annotation",), file_name, PROGRAMS)
    notes = unread_attributes(root, ATTRIBUTES, file_name, PROGRAMS)
    dropped: list[str] = []
    layers = [_read_layer(layer, f"{file_name}, layer {index}", dropped) for index, layer in enumerate(root)]
    dropped += cut_out(layers)
    objects: list[AnnotationObject] = []
    colors: dict[str, Rgb] = {}
    for layer in layers:
        if layer.color and layer.class_name:
            colors.setdefault(layer.class_name, layer.color)
        own = layer.color if layer.color != colors.get(layer.class_name or "") else None
        objects += [replace(obj, color_rgb=own) for obj in layer.positive if not obj.geometry.is_empty]
    mpp = _mpp(root, file_name)
    return AnnotationFile(_program(root), tuple(objects), colors, mpp=mpp, dropped=tuple(dropped), notes=notes)


def _program(root: ET.Element) -> Format:
    return "halo" if root.find("Annotation/Regions/Region/Vertices/V") is not None else "imagescope"


def _mpp(root: ET.Element, file_name: str) -> float | None:
    mpp = number(root, "MicronsPerPixel", file_name) if root.get("MicronsPerPixel") else 0.0
    if not 0 <= mpp < 1e6:
        raise BadAnnotationError(f"{file_name}: MicronsPerPixel={mpp:g} is not a pixel size. Export it again.")
    return mpp or None


def _read_layer(element: ET.Element, where: str, dropped: list[str]) -> Layer:
    check_children(element, ("Attributes", "Regions", "Plots", "Comments"), where, PROGRAMS)
    color = _rgb(element, where)
    layer = Layer(where, color, _class_name(element, color))
    for tag, known in _CHILDREN.items():
        for child in element.iterfind(tag):
            check_children(child, known, where, PROGRAMS)
    count = 0
    for regions in element.iterfind("Regions"):
        for region in regions.iterfind("Region"):
            obj, why = _read_region(region, layer.class_name, f"{where}, region {count}")
            count += 1
            dropped += why
            if obj is not None:
                (layer.negative if _is_negative(region, obj) else layer.positive).append(obj)
    return layer


def _rgb(layer: ET.Element, where: str) -> Rgb | None:
    text = layer.get("LineColor")
    if not text:
        return None
    try:
        value = int(text)
    except ValueError as error:
        raise BadAnnotationError(f"{where}: LineColor={text!r} is not a whole number. Export it again.") from error
    return value & 255, value >> 8 & 255, value >> 16 & 255


def _class_name(layer: ET.Element, color: Rgb | None) -> str | None:
    """The layer's name; else that of its first custom attribute; else its colour."""
    if layer.get("Name"):
        return layer.get("Name")
    for attribute in layer.iterfind("Attributes/Attribute"):
        name = attribute.get("Value") if attribute.get("Name") == DEFAULT_HEADER else attribute.get("Name")
        if name:
            return name
    return hex_of_rgb(color) if color else None


def _is_negative(region: ET.Element, obj: AnnotationObject) -> bool:
    text = region.get("NegativeROA", "")
    negative = _NEGATIVE.get(text.strip().lower())
    if negative is None:
        raise BadAnnotationError(f"{obj.where}: NegativeROA={text!r:.80}; {PROGRAMS} writes 0 or 1. Export it again.")
    if negative and not obj.is_area:
        raise BadAnnotationError(
            f"{obj.where}: is negative but encloses no area (Type={region.get('Type')!r:.80}), so nothing can be cut "
            "out. Delete it in the program that drew it."
        )
    return negative


def _read_region(region: ET.Element, class_name: str | None, where: str) -> tuple[AnnotationObject | None, list[str]]:
    check_children(region, ("Attributes", "Vertices", "Comments"), where, PROGRAMS)
    for attributes in region.iterfind("Attributes"):
        check_children(attributes, _CHILDREN["Attributes"], where, PROGRAMS)
    kind = region.get("Type", "0")
    tool = _TOOLS.get(kind.strip().lower())
    if tool is None:
        raise BadAnnotationError(
            f"{where}: Type={kind!r:.80} is unknown; {PROGRAMS} writes {', '.join(_TOOLS)}. Export it again, or as "
            "QuPath GeoJSON."
        )
    corners = _corners(region, where)
    if not len(corners):
        return None, [f"{where}: has no points"]
    geometry: BaseGeometry | None
    dropped: list[str] = []
    if tool in ("line", "measurement"):
        geometry = line_of(corners)
    elif tool == "points":
        geometry = points_of(corners)
    else:
        tool, ring = _outline(tool, corners)
        geometry, dropped = area_of([[ring]], where)
        if geometry is None:
            return None, dropped
    values = {a.get("Name", ""): a.get("Value", "") for a in region.iterfind("Attributes/Attribute")}
    metadata = {name: value for name, value in values.items() if name and value}
    return AnnotationObject(geometry, where, class_name, _text(region), tool=tool, metadata=metadata), dropped


def _text(region: ET.Element) -> str | None:
    """ImageScope's text of a region, or HALO's comments on it."""
    comments = [comment.get("Body", "").strip() for comment in region.iterfind("Comments/Comment")]
    return region.get("Text") or "; ".join(filter(None, comments)) or None


def _corners(region: ET.Element, where: str) -> Corners:
    lists = region.findall("Vertices")
    if len(lists) > 1:
        raise BadAnnotationError(f"{where}: has {len(lists)} lists of corners; {PROGRAMS} writes one. Export it again.")
    points = []
    for vertices in lists:
        check_children(vertices, ("Vertex", "V"), where, PROGRAMS)
        points += [(number(vertex, "X", where), number(vertex, "Y", where)) for vertex in vertices]
    return corners_of(points, where)


def _outline(tool: Tool, corners: Corners) -> tuple[Tool, Corners]:
    if tool == "freehand" or len(corners) > 5 or (len(corners) == 5 and (corners[0] != corners[-1]).any()):
        return "freehand", corners
    if tool == "ellipse":
        return tool, ellipse_within(corners)
    return tool, rectangle_around(corners) if len(corners) == 2 else corners
