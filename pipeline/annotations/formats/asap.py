"""ASAP XML: one ring or a few points per annotation; classes are groups.

Format: ASAP's `XmlRepository` (Type None, Dot, Polygon, Spline, PointSet, Measurement, Rectangle; each PartOfGroup must
be a Group or "None", or ASAP drops the whole file; some computers write decimal commas). It has no holes, no objects
of several parts, no lines except measurements, and no values except a name and a colour.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import shapely
from shapely.geometry import Polygon

from pipeline.annotations.formats.conversion_loss import lost_mpp, lost_values
from pipeline.annotations.formats.unread import unread_attributes
from pipeline.annotations.formats.xml_ import (
    check_children,
    hex_of_rgb,
    legal,
    number,
    plain_number,
    rgb_of_hex,
    xml_text,
)
from pipeline.annotations.shapes.crossings import check_crossings
from pipeline.annotations.shapes.objects import POINTS, AnnotationFile, AnnotationObject, Group, Rgb, Tool
from pipeline.annotations.shapes.repair import repair
from pipeline.annotations.shapes.rings import (
    Corners,
    area_of,
    corners_of,
    line_of,
    open_ring,
    points_of,
    polygons_of,
    rectangle_around,
    without_holes,
)
from pipeline.errors import BadAnnotationError
from pipeline.files import write_text_atomic
from training.foundation.words.counts import counted

ROOT = "ASAP_Annotations"
NO_GROUP = "None"
YELLOW: Rgb = (244, 250, 88)
_TOOLS: dict[str, Tool] = {
    "none": "nothing",
    "dot": "points",
    "polygon": "freehand",
    "spline": "spline",
    "pointset": "points",
    "measurement": "measurement",
    "rectangle": "rectangle",
}
_CHILDREN = {
    "Annotations": ("Annotation",),
    "Annotations/Annotation": ("Coordinates", "Attributes"),
    "Annotations/Annotation/Coordinates": ("Coordinate",),
    "AnnotationGroups": ("Group",),
    "AnnotationGroups/Group": ("Attributes",),
}

_ATTRIBUTES = {
    **dict.fromkeys((ROOT, "Annotations", "Coordinates", "AnnotationGroups", "Attributes"), frozenset[str]()),
    "Annotation": frozenset({"Name", "Type", "PartOfGroup", "Color"}),
    "Coordinate": frozenset({"Order", "X", "Y"}),
    "Group": frozenset({"Name", "PartOfGroup", "Color"}),
}


def read_asap(root: ET.Element, file_name: str) -> AnnotationFile:
    """Every annotation, in file order. A spline becomes the polygon of its points.

    Raises:
        BadAnnotationError: an unknown element or type, an attribute that may state a class but is unknown, several
            outlines in one annotation, or a coordinate that is not a number.
    """
    objects, dropped = [], []
    _check_elements(root, file_name)
    notes = unread_attributes(root, _ATTRIBUTES, file_name, "ASAP")
    for index, element in enumerate(root.iterfind("Annotations/Annotation")):
        obj, why = _read_annotation(element, f"{file_name}, annotation {index}")
        dropped += why
        if obj is not None:
            objects.append(obj)
    groups = tuple(
        Group(element.get("Name", ""), _parent_group(element), rgb_of_hex(element.get("Color")))
        for element in root.iterfind("AnnotationGroups/Group")
    )
    colors = {group.name: group.color_rgb for group in groups if group.color_rgb}
    notes += _own_values(root)
    return AnnotationFile("asap", tuple(objects), colors, groups, dropped=tuple(dropped), notes=notes)


def _check_elements(root: ET.Element, file_name: str) -> None:
    check_children(root, ("Annotations", "AnnotationGroups"), file_name, "ASAP")
    for path, known in _CHILDREN.items():
        for element in root.iterfind(path):
            check_children(element, known, file_name, "ASAP")


def _own_values(root: ET.Element) -> tuple[str, ...]:
    """A sentence on values that somebody gave to annotations or groups."""
    count = sum(len(attributes) for attributes in root.iter("Attributes"))
    return (f"{counted(count, 'value', 'values')} in <Attributes> of annotations or groups: left out",) if count else ()


def _parent_group(element: ET.Element) -> str | None:
    name = element.get("PartOfGroup", NO_GROUP)
    return None if name in ("", NO_GROUP) else name


def _read_annotation(element: ET.Element, where: str) -> tuple[AnnotationObject | None, list[str]]:
    kind = element.get("Type", "")
    if kind.lower() not in _TOOLS:
        raise BadAnnotationError(f"{where}: Type={kind!r}; ASAP knows {', '.join(_TOOLS)}. Export it again.")
    tool = _TOOLS[kind.lower()]
    corners = _corners(element, where)
    dropped: list[str] = []
    if not len(corners):
        return None, [f"{where}: has no points"]
    if tool in ("points", "nothing"):
        geometry = points_of(corners)
    elif tool == "measurement":
        geometry = line_of(corners)
    else:
        ring = rectangle_around(corners) if tool == "rectangle" and len(corners) == 2 else corners
        area, dropped = area_of([[ring]], where)
        if area is None:
            return None, dropped
        geometry = area
    color, name = rgb_of_hex(element.get("Color")), element.get("Name") or None
    return AnnotationObject(geometry, where, _parent_group(element), name, color, tool=tool), dropped


def _corners(element: ET.Element, where: str) -> Corners:
    lists = element.findall("Coordinates")
    if len(lists) > 1:
        raise BadAnnotationError(f"{where}: has {len(lists)} lists of coordinates; ASAP writes one. Export it again.")
    points = element.findall("Coordinates/Coordinate")
    ordered = sum(bool(point.get("Order")) for point in points)
    if ordered not in (0, len(points)):
        raise BadAnnotationError(
            f"{where}: {ordered} of {len(points)} coordinates have an Order; ASAP writes it for all. Export it again."
        )
    if ordered:
        points.sort(key=lambda point: number(point, "Order", where))
    return corners_of([(number(point, "X", where), number(point, "Y", where)) for point in points], where)


def write_asap(path: Path, file: AnnotationFile) -> list[str]:
    """Write a file that ASAP opens.

    Returns:
        Losses: one sentence for each thing that ASAP cannot hold.

    Raises:
        BadAnnotationError: outlines of areas with holes cross too often.
    """
    check_crossings([obj for obj in file.objects if any(part.interiors for part in polygons_of(obj.geometry))])
    root = ET.Element(ROOT)
    annotations = ET.SubElement(root, "Annotations")
    changes: Counter[str] = Counter()
    for obj in file.objects:
        shapes = _shapes(obj, changes)
        for kind, points in shapes:
            number_so_far = len(annotations)
            _write_annotation(annotations, obj, obj.name or f"Annotation {number_so_far}", kind, points, file)
    groups = ET.SubElement(root, "AnnotationGroups")
    for group in _groups_needed(file):
        more = {"Name": legal(group.name), "PartOfGroup": legal(group.parent or NO_GROUP)}
        ET.SubElement(ET.SubElement(groups, "Group", more, Color=hex_of_rgb(group.color_rgb or YELLOW)), "Attributes")
    write_text_atomic(path, xml_text(root))
    return _losses(file, changes)


def _write_annotation(
    parent: ET.Element,
    obj: AnnotationObject,
    name: str,
    kind: str,
    points: list[tuple[float, float]],
    file: AnnotationFile,
) -> None:
    color = obj.color_rgb or file.class_colors.get(obj.class_name or "") or YELLOW
    element = ET.SubElement(
        parent,
        "Annotation",
        Name=legal(name),
        Type=kind,
        PartOfGroup=legal(obj.class_name or NO_GROUP),
        Color=hex_of_rgb(color),
    )
    coordinates = ET.SubElement(element, "Coordinates")
    for order, (x, y) in enumerate(points):
        ET.SubElement(coordinates, "Coordinate", Order=str(order), X=plain_number(x), Y=plain_number(y))


def _shapes(obj: AnnotationObject, changes: Counter[str]) -> list[tuple[str, list[tuple[float, float]]]]:
    """(Type, points) of each annotation that the object becomes; `changes` counts those that are lossy."""
    points = [(float(x), float(y)) for x, y in shapely.get_coordinates(obj.geometry)]
    if obj.is_area:
        parts = polygons_of(obj.geometry)
        changes["in parts"] += len(parts) > 1
        changes["with holes"] += any(part.interiors for part in parts)
        rings = [open_ring(piece.exterior) for part in parts for piece in _without_holes(part)]
        return [(_type_of(obj, len(ring)), ring) for ring in rings]
    if obj.tool == "nothing" or obj.geometry.geom_type in POINTS:
        kind = "None" if obj.tool == "nothing" else "Dot" if len(points) == 1 else "PointSet"
        return [(kind, points)]
    if len(points) <= 2 or obj.tool == "measurement":
        return [("Measurement", points)]
    changes["lines"] += 1
    return []


def _type_of(obj: AnnotationObject, num_corners: int) -> str:
    if obj.tool == "spline":
        return "Spline"
    return "Rectangle" if obj.tool == "rectangle" and num_corners == 4 else "Polygon"


def _without_holes(part: Polygon) -> list[Polygon]:
    if not part.interiors:
        return [part]
    return [piece for area in polygons_of(repair(part)) for piece in without_holes(area)]


def _groups_needed(file: AnnotationFile) -> list[Group]:
    """The file's own groups, and one for every name that is used but not yet a group."""
    groups = {group.name: group for group in file.groups}
    used = [obj.class_name for obj in file.objects] + [group.parent for group in file.groups]
    for name in used:
        if name is not None and name != NO_GROUP:
            groups.setdefault(name, Group(name, None, file.class_colors.get(name)))
    return list(groups.values())


def _losses(file: AnnotationFile, changes: Counter[str]) -> list[str]:
    notes = []
    if changes["with holes"]:
        cut = counted(changes["with holes"], "area with holes was", "areas with holes were")
        notes.append(f"{cut} cut into pieces without holes; ASAP has none")
    if changes["in parts"]:
        notes.append(f"{counted(changes['in parts'], 'area')} of several parts became one annotation per part")
    if changes["lines"]:
        lines = counted(changes["lines"], "line of more than two points is", "lines of more than two points are")
        notes.append(f"{lines} left out; ASAP has none")
    nameless = sum(obj.class_name == NO_GROUP for obj in file.objects)
    if nameless:
        named = f"of the class {NO_GROUP!r}"
        lose = counted(nameless, f"object {named} loses", f"objects {named} lose")
        notes.append(f"{lose} it; in ASAP that name means no group")
    return [*notes, *lost_mpp(file, "ASAP"), *lost_values(file, "ASAP", keeps_metadata=False)]
