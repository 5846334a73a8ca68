"""An area that labels tiles: a class name and a shape in level-0 pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import shapely
from shapely.geometry.base import BaseGeometry

from pipeline.errors import BadAnnotationError

EDGE_TOLERANCE_PX0 = 1.0


@dataclass(frozen=True)
class Region:
    """One annotated area."""

    class_name: str
    geometry: BaseGeometry
    """Valid Polygon or MultiPolygon, level-0 pixels."""
    where: str
    """File and position in it, for messages."""


def outside(regions: Sequence[Region], size_wh_px0: tuple[int, int]) -> list[Region]:
    """Regions that extend beyond the slide by more than a pixel."""
    if not regions:
        return []
    left, top, right, bottom = shapely.bounds([region.geometry for region in regions]).T
    width, height = size_wh_px0
    e = EDGE_TOLERANCE_PX0
    is_outside = (left < -e) | (top < -e) | (right > width + e) | (bottom > height + e)
    return [region for region, out in zip(regions, is_outside, strict=True) if out]


def check_regions(regions: Sequence[Region], size_wh_px0: tuple[int, int]) -> None:
    """Refuse regions that would give wrong labels.

    Raises:
        BadAnnotationError: regions lie outside the slide.
    """
    stray = outside(regions, size_wh_px0)
    if not stray:
        return
    first, (width, height) = stray[0], size_wh_px0
    left, top, right, bottom = first.geometry.bounds
    others = f" ({len(stray)} of {len(regions)} regions lie outside)" if len(stray) > 1 else ""
    raise BadAnnotationError(
        f"{first.where} (class {first.class_name!r}): spans x {left:.0f} to {right:.0f}, y {top:.0f} to {bottom:.0f}, "
        f"the slide only {width}×{height} level-0 pixels{others}. Does it belong to another slide or another level?"
    )
