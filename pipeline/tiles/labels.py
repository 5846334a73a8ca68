"""Tile labels from annotated areas: the class that covers most of the tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray

from pipeline.errors import BadAnnotationError
from pipeline.tiles.annotations.region import Region


@dataclass(frozen=True)
class TileLabels:
    """Per tile the class index (-1: none) and the share of the tile that class covers."""

    class_index: NDArray[np.int64]
    fraction: NDArray[np.float32]


def class_order(regions: Sequence[Region], configured: Sequence[str], ignored: Sequence[str]) -> tuple[str, ...]:
    """The classes of a tile set, in order.

    Raises:
        BadAnnotationError: an annotation has a class that is neither configured nor ignored.
    """
    found = sorted({region.class_name for region in regions} - set(ignored))
    if not configured:
        return tuple(found)
    for region in regions:
        if region.class_name not in configured and region.class_name not in ignored:
            raise BadAnnotationError(
                f"{region.where}: class {region.class_name!r} is not among the classes {', '.join(configured)}. "
                "Add it to `classes` or `ignore_classes` in the [tile] section of gemslide.toml."
            )
    return tuple(configured)


def label_tiles(
    regions: Sequence[Region],
    corners_xy0: NDArray[np.int64],
    side_px0: int,
    *,
    classes: Sequence[str],
    min_fraction: float,
) -> TileLabels:
    """Label tiles by area.

    A tile carries the class covering the largest share of it if that share is at least `min_fraction`.
    """
    left, top = corners_xy0[:, 0], corners_xy0[:, 1]
    boxes = shapely.box(left, top, left + side_px0, top + side_px0)
    covered = np.zeros((len(boxes), max(1, len(classes))))
    for index, name in enumerate(classes):
        shapes = [region.geometry for region in regions if region.class_name == name]
        if shapes:
            covered[:, index] = _covered(boxes, shapely.union_all(shapes)) / float(side_px0) ** 2
    best = covered.argmax(1)
    fraction = covered[np.arange(len(boxes)), best].astype(np.float32)
    return TileLabels(np.where(fraction >= min_fraction, best, -1), fraction)


def _covered(boxes: NDArray[np.object_], area: shapely.Geometry) -> NDArray[np.float64]:
    """Area of each box inside `area`; parts are looked up in a tree, so that many regions stay quick."""
    parts = shapely.get_parts(area)
    tree = shapely.STRtree(parts)
    box_index, part_index = tree.query(boxes, predicate="intersects")
    overlap = shapely.area(shapely.intersection(boxes[box_index], parts[part_index]))
    return np.asarray(np.bincount(box_index, weights=overlap, minlength=len(boxes)), np.float64)
