"""Writer of Aperio ImageScope XML; layers.py reads it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import shapely
from shapely.geometry import Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.formats.conversion_loss import lost_values
from pipeline.annotations.formats.layers import ROOT
from pipeline.annotations.formats.xml_ import legal, plain_number, xml_text
from pipeline.annotations.shapes.crossings import check_crossings
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject, Rgb
from pipeline.annotations.shapes.regions_cut import MAX_CUTS
from pipeline.annotations.shapes.repair import repair
from pipeline.annotations.shapes.rings import ellipse_within, open_ring, polygons_of, rectangle_around
from pipeline.files import write_text_atomic
from training.foundation.words.counts import counted

GREEN: Rgb = (0, 255, 0)
MAX_ELLIPSE_CHANGE = 0.01
"""Fraction of an ellipse's area; 64 corners enclose 0.2 % less than the curve."""
_TYPES = {"rectangle": "1", "ellipse": "2", "line": "3", "measurement": "3"}


@dataclass(frozen=True)
class _Part:
    """One polygon or line of an object, as a layer holds it."""

    obj: AnnotationObject
    shape: BaseGeometry


def write_imagescope(path: Path, file: AnnotationFile) -> list[str]:
    """Write a file that ImageScope opens: one layer per class, and more where a hole would cut a neighbour.

    Returns:
        Losses: one sentence for each thing that ImageScope cannot hold.

    Raises:
        BadAnnotationError: outlines in layers with holes cross too often to be read again.
    """
    check_crossings([obj for obj in file.objects if any(part.interiors for part in polygons_of(obj.geometry))])
    root = ET.Element(ROOT)
    if file.mpp:
        root.set("MicronsPerPixel", f"{file.mpp:.6f}")
    kept = [obj for obj in file.objects if obj.tool not in ("points", "nothing")]
    by_layer: dict[tuple[str | None, Rgb], list[_Part]] = {}
    changes: Counter[str] = Counter()
    for obj in kept:
        color = obj.color_rgb or file.class_colors.get(obj.class_name or "") or GREEN
        by_layer.setdefault((obj.class_name, color), []).extend(_parts(obj, changes))
    layers = [(*key, layer) for key, parts in by_layer.items() for layer in _layers(parts)]
    holed = [part for *_, layer in layers if any(map(_num_holes, layer)) for part in layer]
    check_crossings([replace(part.obj, geometry=part.shape) for part in holed if isinstance(part.shape, Polygon)])
    for layer in layers:
        _write_layer(root, *layer)
    write_text_atomic(path, xml_text(root))
    return _losses(file, changes)


def _parts(obj: AnnotationObject, changes: Counter[str]) -> list[_Part]:
    """The object's polygons or lines; `changes` counts objects that are not written as drawn."""
    if not obj.is_area:
        return [_Part(obj, line) for line in shapely.get_parts(obj.geometry)]
    drawn = polygons_of(obj.geometry)
    written = [part for polygon in drawn for part in _with_holes_inside(polygon)]
    changes["repaired"] += written != drawn
    if obj.tool == "ellipse" and not all(map(_is_upright_ellipse, written)):
        changes["ellipses"] += 1
        obj = replace(obj, tool="freehand")
    return [_Part(obj, polygon) for polygon in written]


def _with_holes_inside(polygon: Polygon) -> list[Polygon]:
    """The polygon as drawn if each hole cuts its outline; else repaired, since other holes would be lost."""
    if not polygon.interiors or polygon.is_valid:
        return [polygon]
    outline = repair(Polygon(polygon.exterior))
    holes = [repair(Polygon(ring)) for ring in polygon.interiors]
    if all(outline.intersects(hole) and not outline.touches(hole) for hole in holes):
        return [polygon]
    return polygons_of(repair(polygon)) or [Polygon(polygon.exterior)]


def _is_upright_ellipse(polygon: Polygon) -> bool:
    """Whether it is, nearly, the ellipse that readers make of its box."""
    ellipse = Polygon(ellipse_within(shapely.get_coordinates(polygon.exterior)))
    outline = repair(Polygon(polygon.exterior))
    return bool(outline.symmetric_difference(ellipse).area <= MAX_ELLIPSE_CHANGE * ellipse.area)


def _num_holes(part: _Part) -> int:
    return len(part.shape.interiors) if isinstance(part.shape, Polygon) else 0


def _layers(parts: Sequence[_Part]) -> Iterable[list[_Part]]:
    """All parts in one layer, except those whose holes reach into another part: each of these gets its own layer.

    A layer has no more holes than readers cut.
    """
    solid = [repair(part.shape) if isinstance(part.shape, Polygon) else part.shape for part in parts]
    tree = shapely.STRtree(solid)
    shared: list[_Part] = []
    alone: list[_Part] = []
    for index, part in enumerate(parts):
        rings = part.shape.interiors if isinstance(part.shape, Polygon) else []
        hits = {int(hit) for ring in rings for hit in tree.query(repair(Polygon(ring)), predicate="intersects")}
        others = {hit for hit in hits - {index} if isinstance(parts[hit].shape, Polygon)}
        (alone if others else shared).append(part)
    together = _with_few_holes(shared)
    return together + [[part] for part in alone]


def _with_few_holes(parts: Sequence[_Part]) -> list[list[_Part]]:
    layers: list[list[_Part]] = []
    num_holes = 0
    for part in parts:
        num_holes += _num_holes(part)
        if not layers or num_holes > MAX_CUTS:
            layers.append([])
            num_holes = _num_holes(part)
        layers[-1].append(part)
    return layers


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
    """Corners of the outline; for an ellipse, those of its box."""
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


def _losses(file: AnnotationFile, changes: Counter[str]) -> list[str]:
    notes = []
    points = sum(obj.tool in ("points", "nothing") for obj in file.objects)
    if points:
        made = counted(points, "object made of points is", "objects made of points are")
        notes.append(f"{made} left out; ImageScope's layers hold only outlines and lines")
    in_parts = sum(obj.geometry.geom_type in ("MultiPolygon", "MultiLineString") for obj in file.objects)
    if in_parts:
        notes.append(f"{counted(in_parts, 'object')} of several parts became one region per part")
    if changes["repaired"]:
        were = counted(changes["repaired"], "area with holes outside it was", "areas with holes outside them were")
        notes.append(f"{were} repaired; in ImageScope a hole only cuts its region")
    if changes["ellipses"]:
        drawn = "object drawn as an ellipse has another outline", "objects drawn as ellipses have other outlines"
        notes.append(f"{counted(changes['ellipses'], *drawn)} and became freehand; ImageScope holds only the box")
    nameless = sum(obj.class_name is None and obj.tool not in ("points", "nothing") for obj in file.objects)
    if nameless:
        have = counted(nameless, "object has", "objects have")
        notes.append(f"{have} no class; readers use the colour of the nameless layer as the class")
    nested = sum(group.parent is not None for group in file.groups)
    if nested:
        inside = counted(nested, "group is inside another group", "groups are inside other groups")
        notes.append(f"{inside}; ImageScope's layers cannot be nested")
    return notes + lost_values(file, "ImageScope", keeps_metadata=True)
