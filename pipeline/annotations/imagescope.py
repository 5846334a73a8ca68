"""Aperio ImageScope XML: layers of regions, colours as decimal numbers, holes as negative regions of their layer.

Format, from files of the program: Region Type 0 is freehand, 1 a rectangle, 2 an ellipse (both given by the corners of
their box; traced outlines also come as type 1, told by their many points), all others are open lines. Polygons are not
closed. LineColor holds blue above green above red: MoNuSAC's layers are red 255, yellow 65535, blue 16711680.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import shapely
from shapely.geometry import MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.conversion_loss import lost_values
from pipeline.annotations.crossings import check_crossings
from pipeline.annotations.objects import AnnotationFile, AnnotationObject, Rgb, Tool
from pipeline.annotations.repair import repair
from pipeline.annotations.rings import (
    Corners,
    area_of,
    corners_of,
    ellipse_within,
    line_of,
    open_ring,
    polygons_of,
    rectangle_around,
)
from pipeline.annotations.xml_ import hex_of_rgb, legal, number, plain_number, xml_text
from pipeline.errors import BadAnnotationError
from pipeline.files import write_text_atomic

ROOT = "Annotations"
GREEN: Rgb = (0, 255, 0)
DEFAULT_HEADER = "Description"
"""The attribute ImageScope gives every layer; its name says nothing, its value may."""
MAX_CUTS = 20_000
"""Holes that the negative regions of a layer cut; one that lies in many regions cuts one in each."""
MAX_CUT_SINGLY = 200
_AREAS: dict[str, Tool] = {"0": "freehand", "1": "rectangle", "2": "ellipse"}
_TYPES = {"rectangle": "1", "ellipse": "2", "line": "3", "measurement": "3"}


def read_imagescope(root: ET.Element, file_name: str) -> AnnotationFile:
    """Every region, in file order; negative regions are cut out of the regions of their layer.

    Raises:
        BadAnnotationError: a coordinate or colour that is not a number, or outlines that cross too often.
    """
    objects: list[AnnotationObject] = []
    dropped: list[str] = []
    colors: dict[str, Rgb] = {}
    layers: list[tuple[list[AnnotationObject], list[AnnotationObject], Rgb | None]] = []
    for index, layer in enumerate(root.iterfind("Annotation")):
        where = f"{file_name}, layer {index}"
        color = _rgb(layer, where)
        class_name = _class_name(layer, color)
        if color and class_name:
            colors.setdefault(class_name, color)
        positive: list[AnnotationObject] = []
        negative: list[AnnotationObject] = []
        for number_in_layer, region in enumerate(layer.iterfind("Regions/Region")):
            obj, why = _read_region(region, class_name, f"{where}, region {number_in_layer}")
            dropped += why
            if obj is not None:
                (negative if region.get("NegativeROA") == "1" and obj.is_area else positive).append(obj)
        layers.append((positive, negative, color if color != colors.get(class_name or "") else None))
    cut = [obj for positive, negative, _ in layers if negative for obj in (*positive, *negative) if obj.is_area]
    check_crossings(cut)
    for positive, negative, own in layers:
        dropped += _cut_out(positive, negative)
        objects += [replace(obj, color_rgb=own) for obj in positive if not obj.geometry.is_empty]
    mpp = number(root, "MicronsPerPixel", file_name) if root.get("MicronsPerPixel") else None
    return AnnotationFile("imagescope", tuple(objects), colors, mpp=mpp or None, dropped=tuple(dropped))


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
    """The layer's name; else that of its first attribute of its own; else its colour."""
    if layer.get("Name"):
        return layer.get("Name")
    for attribute in layer.iterfind("Attributes/Attribute"):
        name = attribute.get("Value") if attribute.get("Name") == DEFAULT_HEADER else attribute.get("Name")
        if name:
            return name
    return hex_of_rgb(color) if color else None


def _read_region(region: ET.Element, class_name: str | None, where: str) -> tuple[AnnotationObject | None, list[str]]:
    vertices = region.iterfind("Vertices/Vertex")
    corners = corners_of([(number(each, "X", where), number(each, "Y", where)) for each in vertices], where)
    if not len(corners):
        return None, [f"{where}: has no points"]
    geometry: BaseGeometry | None
    tool: Tool = _AREAS.get(region.get("Type", "0"), "line")
    dropped: list[str] = []
    if tool == "line":
        geometry = line_of(corners)
    else:
        tool, ring = _outline(tool, corners)
        geometry, dropped = area_of([[ring]], where)
        if geometry is None:
            return None, dropped
    attributes = {a.get("Name", ""): a.get("Value", "") for a in region.iterfind("Attributes/Attribute")}
    metadata = {name: value for name, value in attributes.items() if name and value}
    return AnnotationObject(
        geometry, where, class_name, region.get("Text") or None, tool=tool, metadata=metadata
    ), dropped


def _outline(tool: Tool, corners: Corners) -> tuple[Tool, Corners]:
    if tool == "freehand" or len(corners) > 4:
        return "freehand", corners
    if tool == "ellipse":
        return tool, ellipse_within(corners)
    return tool, rectangle_around(corners) if len(corners) == 2 else corners


def _cut_out(positive: list[AnnotationObject], negative: Sequence[AnnotationObject]) -> list[str]:
    """Make holes of the negative regions, in place; those that touch nothing are told."""
    if not negative:
        return []
    dropped = []
    holes_in: dict[int, list[BaseGeometry]] = {}
    tree = shapely.STRtree([repair(obj.geometry) if obj.is_area else Polygon() for obj in positive])
    num_cuts = 0
    for hole in negative:
        cut = tree.query(repair(hole.geometry), predicate="intersects")
        num_cuts += len(cut)
        if num_cuts > MAX_CUTS:
            raise BadAnnotationError(
                f"{hole.where}: with it, negative regions of its layer cut more than {MAX_CUTS} holes. They cut every "
                "region that they touch: give regions that lie in each other layers of their own."
            )
        for index in map(int, cut):
            holes_in.setdefault(index, []).append(hole.geometry)
        if not len(cut):
            dropped.append(f"{hole.where}: a negative region that lies in no region of its layer")
    for index, holes in holes_in.items():
        positive[index] = replace(positive[index], geometry=_minus_all(positive[index].geometry, holes))
    dropped += [f"{d.where}: negative regions cover all of it" for d in positive if d.geometry.is_empty]
    return dropped


def _minus_all(area: BaseGeometry, holes: Sequence[BaseGeometry]) -> BaseGeometry:
    """The area less all holes: as if they were cut out one after the other, in their order."""
    outlines = [hole.exterior for hole in holes if isinstance(hole, Polygon)]
    if isinstance(area, Polygon) and len(outlines) == len(holes):
        candidate = Polygon(area.exterior, [*area.interiors, *outlines])
        if candidate.is_valid:
            return candidate
    if len(holes) > MAX_CUT_SINGLY:  # each would be tried with all before it
        return MultiPolygon(polygons_of(repair(area).difference(shapely.union_all([repair(hole) for hole in holes]))))
    for hole in holes:
        area = _minus(area, hole)
    return area


def _minus(area: BaseGeometry, hole: BaseGeometry) -> BaseGeometry:
    """The hole as an inner ring where that says the same, so that both keep their corners; else the difference."""
    if isinstance(area, Polygon) and isinstance(hole, Polygon):
        candidate = Polygon(area.exterior, [*area.interiors, hole.exterior])
        if candidate.is_valid or not (area.is_valid and hole.is_valid):
            return candidate  # a broken one is repaired later, and counted
    return MultiPolygon(polygons_of(repair(area).difference(repair(hole))))


@dataclass(frozen=True)
class _Part:
    """One polygon or line of an object, as a layer holds it."""

    obj: AnnotationObject
    shape: BaseGeometry


def write_imagescope(path: Path, file: AnnotationFile) -> list[str]:
    """Write a file that ImageScope opens, one layer per class, and further ones where a hole would cut a neighbour.

    Returns:
        What ImageScope cannot hold, one sentence each.
    """
    root = ET.Element(ROOT)
    if file.mpp:
        root.set("MicronsPerPixel", f"{file.mpp:.6f}")
    kept = [obj for obj in file.objects if obj.tool not in ("points", "nothing")]
    by_layer: dict[tuple[str | None, Rgb], list[_Part]] = {}
    for obj in kept:
        color = obj.color_rgb or file.class_colors.get(obj.class_name or "") or GREEN
        shapes = polygons_of(obj.geometry) if obj.is_area else list(shapely.get_parts(obj.geometry))
        by_layer.setdefault((obj.class_name, color), []).extend(_Part(obj, shape) for shape in shapes)
    for (class_name, color), parts in by_layer.items():
        for layer in _layers(parts):
            _write_layer(root, class_name, color, layer)
    write_text_atomic(path, xml_text(root))
    return _losses(file)


def _layers(parts: Sequence[_Part]) -> Iterable[list[_Part]]:
    """All parts in one layer, but for those whose holes reach into another: each of these has a layer of its own."""
    solid = [repair(part.shape) if isinstance(part.shape, Polygon) else part.shape for part in parts]
    tree = shapely.STRtree(solid)
    shared: list[_Part] = []
    alone: list[_Part] = []
    for index, part in enumerate(parts):
        rings = part.shape.interiors if isinstance(part.shape, Polygon) else []
        hits = {int(hit) for ring in rings for hit in tree.query(repair(Polygon(ring)), predicate="intersects")}
        others = {hit for hit in hits - {index} if isinstance(parts[hit].shape, Polygon)}
        (alone if others else shared).append(part)
    return ([shared] if shared else []) + [[part] for part in alone]


def _write_layer(root: ET.Element, class_name: str | None, color: Rgb, parts: Sequence[_Part]) -> None:
    red, green, blue = color
    layer = ET.SubElement(root, "Annotation", Id=str(len(root) + 1), Name=legal(class_name or ""), ReadOnly="0")
    layer.attrib.update(NameReadOnly="0", LineColorReadOnly="0", Incremental="0", Type="4")
    layer.attrib.update(LineColor=str(blue << 16 | green << 8 | red), Visible="1", Selected="0", MarkupImagePath="")
    layer.set("MacroName", "")
    ET.SubElement(layer, "Attributes")
    regions = ET.SubElement(layer, "Regions")
    ET.SubElement(regions, "RegionAttributeHeaders")
    for part in parts:
        if isinstance(part.shape, Polygon):
            _write_region(regions, part, _ring(part.obj, part.shape), _TYPES.get(part.obj.tool, "0"), is_hole=False)
            for interior in part.shape.interiors:
                _write_region(regions, part, open_ring(interior), "0", is_hole=True)
        else:
            points = [(float(x), float(y)) for x, y in shapely.get_coordinates(part.shape)]
            _write_region(regions, part, points, _TYPES["line"], is_hole=False)
    ET.SubElement(layer, "Plots")


def _ring(obj: AnnotationObject, polygon: Polygon) -> list[tuple[float, float]]:
    """Corners of the outline; of an ellipse those of its box."""
    if obj.tool == "ellipse":
        box = rectangle_around(shapely.get_coordinates(polygon.exterior))
        return [(float(x), float(y)) for x, y in box]
    return open_ring(polygon.exterior)


def _write_region(
    regions: ET.Element, part: _Part, points: Sequence[tuple[float, float]], kind: str, *, is_hole: bool
) -> None:
    number_so_far = str(len(regions))
    region = ET.SubElement(regions, "Region", Id=number_so_far, Type=kind, Zoom="1", Selected="0", ImageLocation="")
    region.attrib.update(ImageFocus="-1", Length=f"{part.shape.length:.1f}", Area=f"{part.shape.area:.1f}")
    region.attrib.update(Text=legal(part.obj.name or ""), NegativeROA="1" if is_hole else "0", InputRegionId="0")
    region.attrib.update(Analyze="1", DisplayId=number_so_far)
    attributes = ET.SubElement(region, "Attributes")
    for index, (name, value) in enumerate({} if is_hole else part.obj.metadata.items()):
        ET.SubElement(attributes, "Attribute", Name=legal(name), Id=str(index), Value=legal(value))
    vertices = ET.SubElement(region, "Vertices")
    for x, y in points:
        ET.SubElement(vertices, "Vertex", X=plain_number(x), Y=plain_number(y), Z="0")


def _losses(file: AnnotationFile) -> list[str]:
    notes = []
    points = sum(obj.tool in ("points", "nothing") for obj in file.objects)
    if points:
        notes.append(f"{points} objects made of points are left out; ImageScope's layers hold outlines and lines")
    in_parts = sum(obj.geometry.geom_type in ("MultiPolygon", "MultiLineString") for obj in file.objects)
    if in_parts:
        notes.append(f"{in_parts} objects of several parts became one region for each part")
    nameless = sum(obj.class_name is None and obj.tool not in ("points", "nothing") for obj in file.objects)
    if nameless:
        notes.append(f"{nameless} objects have no class; readers take the colour of their nameless layer for it")
    nested = sum(group.parent is not None for group in file.groups)
    if nested:
        notes.append(f"{nested} groups lie in other groups; ImageScope's layers do not")
    return notes + lost_values(file, "ImageScope", keeps_metadata=True)
