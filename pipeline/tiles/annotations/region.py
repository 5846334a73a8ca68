"""What every annotation reader gives: a class name and a shape in level-0 pixels."""

from __future__ import annotations

from dataclasses import dataclass

from shapely.geometry.base import BaseGeometry
from shapely.validation import explain_validity

from pipeline.errors import BadAnnotationError

EDGE_TOLERANCE_PX0 = 1.0


@dataclass(frozen=True)
class Region:
    """One annotated area."""

    class_name: str
    geometry: BaseGeometry
    """Polygon or MultiPolygon, level-0 pixels."""
    where: str
    """File and position in it, for messages."""


def check_region(region: Region, size_wh_px0: tuple[int, int]) -> None:
    """Refuse what would give wrong labels.

    Raises:
        BadAnnotationError: the outline crosses itself, or lies outside the slide.
    """
    if not region.geometry.is_valid:
        raise BadAnnotationError(
            f"{region.where} (class {region.class_name!r}): the outline is not a valid area: "
            f"{explain_validity(region.geometry)}. Redraw it in QuPath, or use its 'Simplify shape'."
        )
    left, top, right, bottom = region.geometry.bounds
    width, height = size_wh_px0
    e = EDGE_TOLERANCE_PX0
    if left < -e or top < -e or right > width + e or bottom > height + e:
        raise BadAnnotationError(
            f"{region.where} (class {region.class_name!r}): spans x {left:.0f} to {right:.0f}, y {top:.0f} to "
            f"{bottom:.0f}, the slide only {width}×{height} level-0 pixels. Is it the annotation of another slide, "
            "or of another level?"
        )
