"""Annotations as outlines that napari can draw and a person can edit, and back. Level-0 pixels; no napari here.

napari's shapes have neither holes nor parts: an area has one outline per ring, identified by `part`. Untouched
annotations are never converted back: they keep their stored geometry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import LineString, MultiLineString, MultiPoint, MultiPolygon, Point, Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.review import Annotation, Draft

Corners = NDArray[np.float64]
ELLIPSE_CORNERS = 64
_SAME_PX0 = 0.02
"""The database stores hundredths of a pixel."""
_ROUND = 0.02
"""Tolerance: share of the radius for an ellipse's corners, cosine of the angle for a rectangle's."""


@dataclass(frozen=True)
class Outline:
    """One of napari's shapes, or one of its points.

    Attributes:
        tool: "rectangle", "ellipse" (four corners of its box), "polygon", "path" or "point".
        corners_yx: float64 (corners, 2), level-0 pixels from the slide's corner.
        part: "2.0" is the outer ring of the third part, "2.1" its first hole.
        annotation_id: empty for an outline drawn here and never saved.
    """

    tool: str
    corners_yx: Corners
    annotation_id: str = ""
    part: str = "0.0"
    class_name: str = ""
    note: str = ""
    author: str = ""

    @property
    def is_hole(self) -> bool:
        return not self.part.endswith(".0")

    def is_like(self, other: Outline) -> bool:
        """Whether both have the same position and shape."""
        return (
            self.tool == other.tool
            and self.corners_yx.shape == other.corners_yx.shape
            and bool(np.allclose(self.corners_yx, other.corners_yx, rtol=0, atol=_SAME_PX0))
        )


def outlines_of(annotation: Annotation) -> list[Outline]:
    """Outlines to draw for an annotation."""
    outlines = []
    for part, shape in enumerate(shapely.get_parts(annotation.shape)):
        rings = [shape.exterior, *shape.interiors] if isinstance(shape, Polygon) else [shape]
        for ring, line in enumerate(rings):
            corners_yx = np.asarray(line.coords, float)[:, 1::-1]
            tool, corners_yx = _tool_of(annotation.kind if len(rings) == 1 else "polygon", shape, corners_yx)
            texts = (annotation.class_name or "", annotation.note, annotation.author)
            outlines.append(Outline(tool, corners_yx, annotation.annotation_id, f"{part}.{ring}", *texts))
    return outlines


def drafts_of(outlines: Sequence[Outline], present: Iterable[Annotation]) -> list[Draft]:
    """Changes to save so that the database matches the drawing: new, changed and deleted annotations.

    Args:
        outlines: all drawn outlines; those of one annotation have its id.
        present: the annotations drawn at first, as they were in the database.
    """
    groups: dict[str, list[Outline]] = defaultdict(list)
    for outline in outlines:
        groups[outline.annotation_id].append(outline)
    drafts = []
    for annotation in present:
        drafts += _change(annotation, groups.pop(annotation.annotation_id, []))
    for annotation_id, group in groups.items():
        if all(outline.is_hole for outline in group):  # pasted without the area around it
            group = [replace(outline, part=f"{index}.0") for index, outline in enumerate(group)]
        first = group[0]
        kind, class_name = _kind_of(first.tool, "", len(first.corners_yx)), first.class_name or None
        drafts.append(Draft(_shape_of(group), kind, class_name, first.note, annotation_id))
    return drafts


def with_ids(outlines: Sequence[Outline], new_id: Callable[[], str]) -> list[Outline]:
    """Outlines in which every annotation has a unique id: a pasted shape is a new annotation, not its original.

    Args:
        new_id: called once per new annotation.
    """
    times: dict[tuple[str, str], int] = defaultdict(int)
    copies: dict[tuple[str, int], str] = {}
    with_unique_ids = []
    for outline in outlines:
        key = outline.annotation_id, outline.part
        times[key] += 1
        if not outline.annotation_id:
            outline = replace(outline, annotation_id=new_id(), part="0.0")
        elif times[key] > 1:  # rings pasted together stay one annotation
            copy = outline.annotation_id, times[key]
            if copy not in copies:
                copies[copy] = new_id()
            outline = replace(outline, annotation_id=copies[copy], author="")
        with_unique_ids.append(outline)
    return with_unique_ids


def _change(annotation: Annotation, group: Sequence[Outline]) -> list[Draft]:
    if not any(not outline.is_hole for outline in group):
        return [annotation.draft(is_deleted=True)]
    before = outlines_of(annotation)
    first = group[0]
    texts = {"class_name": first.class_name or None, "note": first.note}
    by_part = {outline.part: outline for outline in group}
    if len(group) == len(before) and all(
        outline.part in by_part and by_part[outline.part].is_like(outline) for outline in before
    ):  # shape unchanged
        is_same = texts == {"class_name": annotation.class_name, "note": annotation.note}
        return [] if is_same else [annotation.draft(**texts)]
    return [
        annotation.draft(
            shape=_shape_of(group), kind=_kind_of(first.tool, annotation.kind, len(first.corners_yx)), **texts
        )
    ]


def _tool_of(kind: str, shape: BaseGeometry, corners_yx: Corners) -> tuple[str, Corners]:
    """napari's tool for an outline, and the corners it expects."""
    if isinstance(shape, Point):
        return "point", corners_yx
    if not isinstance(shape, Polygon):
        return "path", corners_yx
    open_yx = corners_yx[:-1]
    if kind == "rectangle" and _is_rectangle(open_yx):
        return "rectangle", open_yx
    if kind == "ellipse" and _is_upright_ellipse(open_yx):
        (top, left), (bottom, right) = open_yx.min(0), open_yx.max(0)
        return "ellipse", np.array([(top, left), (top, right), (bottom, right), (bottom, left)])
    return "polygon", open_yx


def _is_rectangle(corners_yx: Corners) -> bool:
    if len(corners_yx) != 4:
        return False
    sides = np.roll(corners_yx, -1, axis=0) - corners_yx
    lengths = np.linalg.norm(sides, axis=1)
    cosines = (sides * np.roll(sides, -1, axis=0)).sum(1) / np.maximum(lengths * np.roll(lengths, -1), 1e-9)
    return bool((np.abs(cosines) < _ROUND).all())


def _is_upright_ellipse(corners_yx: Corners) -> bool:
    lowest, highest = corners_yx.min(0), corners_yx.max(0)
    radii = np.maximum((highest - lowest) / 2, 1e-9)
    distances = np.linalg.norm((corners_yx - (lowest + highest) / 2) / radii, axis=1)
    return len(corners_yx) > 8 and bool((np.abs(distances - 1) < _ROUND).all())


_KEPT_KINDS = {
    "polygon": ("freehand", "area", "count"),
    "path": ("ruler", "arrow"),
    "line": ("ruler", "arrow"),
    "point": ("text", "mark"),
}
"""Kinds that an annotation keeps when its shape is edited with each tool."""


def _kind_of(tool: str, before: str, corners: int) -> str:
    """Kind of an annotation, by its tool; `before`: its previous kind, kept if the tool still matches."""
    if before in _KEPT_KINDS.get(tool, ()) and (before != "arrow" or corners == 2):
        return before
    return {"path": "line", "line": "line"}.get(tool, tool)


def _shape_of(group: Sequence[Outline]) -> BaseGeometry:
    """One geometry from all rings of an annotation; holes without an outer ring are dropped."""
    tool = group[0].tool
    if tool == "point":
        points = [Point(outline.corners_yx[0, ::-1]) for outline in group]
        return points[0] if len(points) == 1 else MultiPoint(points)
    if tool in ("path", "line"):
        lines = [LineString(outline.corners_yx[:, ::-1]) for outline in group]
        return lines[0] if len(lines) == 1 else MultiLineString(lines)
    rings: dict[str, list[Outline]] = defaultdict(list)
    for outline in group:
        rings[outline.part.partition(".")[0]].append(outline)
    areas = []
    for members in rings.values():
        shells = [outline for outline in members if not outline.is_hole]
        holes = [_ring_xy(outline) for outline in members if outline.is_hole]
        areas += [Polygon(_ring_xy(shell), holes) for shell in shells]
    return areas[0] if len(areas) == 1 else MultiPolygon(areas)


def _ring_xy(outline: Outline) -> Corners:
    corners_yx = outline.corners_yx
    if outline.tool == "ellipse":
        centre = (corners_yx[0] + corners_yx[2]) / 2
        radii = (corners_yx[1] - corners_yx[0]) / 2, (corners_yx[3] - corners_yx[0]) / 2
        angles = np.linspace(0, 2 * np.pi, ELLIPSE_CORNERS, endpoint=False)[:, None]
        corners_yx = centre + np.cos(angles) * radii[0] + np.sin(angles) * radii[1]
    return corners_yx[:, ::-1]
