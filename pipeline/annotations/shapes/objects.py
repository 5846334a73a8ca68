"""Drawn objects that annotation readers return and writers take, mostly in level-0 pixels from the top left.

An object is kept as it was drawn, mistakes included, so that a file survives a round trip unchanged. repair.py selects
and repairs the areas that label tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import shapely
from shapely.geometry.base import BaseGeometry

Format = Literal["qupath", "asap", "imagescope", "halo", "dsa", "ndpa"]
"""The file's program. Files of HALO, the Digital Slide Archive (HistomicsTK) and Hamamatsu (NDPA) are only read."""
WritableFormat = Literal["qupath", "asap", "imagescope"]
Unit = Literal["px0", "nm"]
ObjectType = Literal["annotation", "detection", "cell", "tile", "tmaCore", "root"]
Tool = Literal["freehand", "rectangle", "ellipse", "spline", "line", "measurement", "points", "nothing"]
Rgb = tuple[int, int, int]

IGNORED_ENDING = "*"
"""Ends the names of QuPath's ignored classes, such as Ignore* and Region*, which are no classes to learn or measure."""
AREAS = ("Polygon", "MultiPolygon")
POINTS = ("Point", "MultiPoint")


@dataclass(frozen=True)
class AnnotationObject:
    """One object of an annotation file."""

    geometry: BaseGeometry
    """Level-0 pixels; an area may cross itself."""
    where: str
    """File and position in it, for messages."""
    class_name: str | None = None
    name: str | None = None
    color_rgb: Rgb | None = None
    """The object's own colour, if it has one besides its class's."""
    object_type: ObjectType = "annotation"
    """QuPath's object type; other formats have annotations only."""
    tool: Tool = "freehand"
    """The tool it was drawn with."""
    nucleus: BaseGeometry | None = None
    """The nucleus of a cell."""
    object_id: str | None = None
    is_locked: bool = False
    measurements: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    plane: Mapping[str, int] | None = None
    """QuPath's channel, z and time of the object, if stated."""

    @property
    def is_area(self) -> bool:
        return self.geometry.geom_type in AREAS

    @property
    def labels_tiles(self) -> bool:
        """Whether it is an area drawn and named by a person, not a point, line, measurement or detected cell."""
        return self.class_name is not None and self._is_drawn_area and not self.has_ignored_class

    @property
    def has_ignored_class(self) -> bool:
        """Whether it is an area of a class that QuPath ignores."""
        return self._is_drawn_area and (self.class_name or "").endswith(IGNORED_ENDING)

    @property
    def _is_drawn_area(self) -> bool:
        return self.is_area and self.object_type == "annotation"

    @property
    def num_vertices(self) -> int:
        """Corners of the outline, not counting the point that closes a ring twice."""
        num_coordinates = int(shapely.get_num_coordinates(self.geometry))
        if not self.is_area:
            return num_coordinates
        return num_coordinates - sum(
            1 + int(shapely.get_num_interior_rings(p)) for p in shapely.get_parts(self.geometry)
        )


@dataclass(frozen=True)
class Group:
    """A group in ASAP: a class, perhaps inside another."""

    name: str
    parent: str | None = None
    color_rgb: Rgb | None = None


@dataclass(frozen=True)
class AnnotationFile:
    """Everything read from one file."""

    format: Format
    objects: tuple[AnnotationObject, ...]
    class_colors: Mapping[str, Rgb] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    """ASAP files only."""
    mpp: float | None = None
    """Microns per level-0 pixel, if the file states it."""
    dropped: tuple[str, ...] = ()
    """Objects that could not be built, and why, one sentence each."""
    notes: tuple[str, ...] = ()
    """Other content of the file that is left out, or has an effect other than it may seem, one sentence each."""
    unit: Unit = "px0"
    """Unit of all coordinates: level-0 pixels from the top left, or (NDPA) nanometres from the centre of the glass
    slide, which frames.py converts."""

    @property
    def num_corners(self) -> int:
        """Total over all objects."""
        return int(shapely.get_num_coordinates([obj.geometry for obj in self.objects]).sum())

    def count_by_class(self) -> dict[str | None, int]:
        """Objects per class, in alphabetical order, those without a class last."""
        counts = Counter(obj.class_name for obj in self.objects)
        return dict(sorted(counts.items(), key=lambda item: (item[0] is None, item[0] or "")))
