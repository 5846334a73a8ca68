"""From drawn objects to the areas that label tiles: self-intersecting outlines are repaired and reported.

An outline is broken if its polygon, closed and with its holes, is not a valid area in the sense of OGC Simple
Features (shapely's `is_valid`): it crosses or touches itself, or a hole leaves it. It is repaired by GEOS's "structure"
rule: each ring is made valid by itself, then outlines are joined and holes cut out. A freehand loop drawn twice around
thus stays inside, and a figure of eight keeps both halves. Parts without area (lines, points) are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import shapely
from shapely.geometry import MultiPolygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.shapes.crossings import CrossingCount, check_crossings, is_quickly_valid
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject
from pipeline.annotations.shapes.region import Region
from pipeline.annotations.shapes.rings import polygons_of
from pipeline.bounded import Limits, within
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class RepairReport:
    """Repairs of the areas of one file."""

    num_regions: int
    """Areas that label tiles, the repaired ones included."""
    num_repaired: int
    area_px0: float
    """Area of all regions, after repair."""
    added_px0: float
    """Area after repair minus area as drawn, of the repaired regions that grew: a loop drawn the other way round
    counts as negative in the area of a broken outline."""
    removed_px0: float
    """The same for those that shrank."""
    dropped: tuple[str, ...]
    """Objects and rings that enclose nothing, one sentence each; they name the file."""
    num_unused: int
    """Objects that label nothing: points, lines, cells, and areas without a class or of one that QuPath ignores."""
    num_ignored: int
    """Of these, the areas of a class that QuPath ignores."""

    def as_dict(self) -> dict[str, object]:
        """Counts and areas (level-0 px²) for a table's metadata, without the file's name."""
        return {
            "regions": self.num_regions,
            "repaired": self.num_repaired,
            "dropped": len(self.dropped),
            "unused": self.num_unused,
            "area_px0": round(self.area_px0, 1),
            "added_px0": round(self.added_px0, 1),
            "removed_px0": round(self.removed_px0, 1),
            **({"ignored": self.num_ignored} if self.num_ignored else {}),
        }

    def summary(self) -> str:
        """One line without file names."""
        return describe_repairs(self.as_dict())


def describe_repairs(counts: Mapping[str, Any]) -> str:
    """Summarise `RepairReport.as_dict` in one line."""
    parts = [counted(counts["regions"], "region")]
    if counts["repaired"]:
        changed = (counts["added_px0"] + counts["removed_px0"]) / max(counts["area_px0"], 1.0)
        crossed = counted(counts["repaired"], "outline that crossed itself", "outlines that crossed themselves")
        parts.append(f"{crossed} repaired (area changed by {changed:.3%})")
    if counts["dropped"]:
        parts.append(f"{counts['dropped']} without area dropped")
    if any(counts.get("moved_xy0", ())):
        parts.append(f"moved by {tuple(counts['moved_xy0'])} px, to QuPath's origin")
    if counts["unused"]:
        ignored = counts.get("ignored", 0)
        of_them = f" ({ignored} of a class that QuPath ignores, named …*)" if ignored else ""
        parts.append(counted(counts["unused"], "object labels nothing", "objects label nothing") + of_them)
    return ", ".join(parts)


def repair(geometry: BaseGeometry) -> BaseGeometry:
    """Make an area valid; empty if nothing has area. A valid one is returned unchanged."""
    if geometry.is_valid:
        return geometry
    solid = shapely.make_valid(geometry, method="structure", keep_collapsed=False)
    # Where corners are a rounding error apart, GEOS may leave a crossing of that size; a zero buffer closes it.
    parts = polygons_of(solid if solid.is_valid else solid.buffer(0))
    return parts[0] if len(parts) == 1 else MultiPolygon(parts)


def repaired_area(area: BaseGeometry, where: str, count: CrossingCount | None = None) -> BaseGeometry:
    """One area, made valid; empty if nothing has area.

    Args:
        count: crossings of the operation that this is part of; None if this is the whole operation.

    Raises:
        BadAnnotationError: the operation's outlines cross too often to be repaired in a moment.
    """
    if is_quickly_valid(area):
        return area
    (count or CrossingCount()).add([AnnotationObject(area, where)])
    return repair(area)


def labelled_regions(file: AnnotationFile) -> tuple[list[Region], RepairReport]:
    """The named areas of a file, valid, in file order, and a report of the repairs.

    Raises:
        BadAnnotationError: outlines cross too often to be repaired in a moment.
    """
    with within(Limits.for_corners(file.num_corners), "the annotations"):
        return _labelled_regions(file)


def _labelled_regions(file: AnnotationFile) -> tuple[list[Region], RepairReport]:
    regions: list[Region] = []
    repaired: list[float] = []
    dropped = list(file.dropped)
    used = [obj for obj in file.objects if obj.labels_tiles and obj.class_name is not None]
    check_crossings(used)
    for obj in used:
        area = repair(obj.geometry)
        if area.area == 0:
            dropped.append(f"{obj.where} (class {obj.class_name!r}): its outline encloses no area")
            continue
        if area is not obj.geometry:
            repaired.append(area.area - obj.geometry.area)
        regions.append(Region(obj.class_name or "", area, obj.where))
    report = RepairReport(
        num_regions=len(regions),
        num_repaired=len(repaired),
        area_px0=float(sum(region.geometry.area for region in regions)),
        added_px0=sum(change for change in repaired if change > 0),
        removed_px0=-sum(change for change in repaired if change < 0),
        dropped=tuple(dropped),
        num_unused=len(file.objects) - len(used),
        num_ignored=sum(obj.has_ignored_class for obj in file.objects),
    )
    return regions, report
