"""Tile labels from annotated areas: the class that covers most of a tile, or the one at its centre."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import Polygon
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.shapes.objects import IGNORED_ENDING
from pipeline.annotations.shapes.region import Region
from pipeline.annotations.shapes.rings import polygons_of
from pipeline.bounded import Limits, within
from pipeline.errors import BadAnnotationError
from pipeline.tiles.nesting import filled_areas, innermost

MAX_PIECE_VERTICES = 128
"""Larger areas are cut up, so that a tile is compared only with what is near it."""
MAX_LOOKED_AT = 256
"""Areas whose neighbours are queried at once."""
MAX_HALVINGS = 32
"""Corners too close together for floating-point numbers to separate are not cut apart."""
_NOT_FOUND = -2


@dataclass(frozen=True)
class TileLabels:
    """Per tile the class index (-1: none) and the share of the tile that class covers."""

    class_index: NDArray[np.int64]
    fraction: NDArray[np.float32]
    largest: NDArray[np.float32]
    """Per class, the largest share of a tile that it covers."""


@dataclass(frozen=True)
class SlideLabel:
    """The label of a whole slide, as the manifest gives it."""

    class_name: str
    slide_id: str

    @property
    def where(self) -> str:
        return f"slide {self.slide_id}, column `label` of the manifest"


def class_order(
    regions: Sequence[Region | SlideLabel], configured: Sequence[str], ignored: Sequence[str]
) -> tuple[str, ...]:
    """The classes of a tile set, in order.

    Raises:
        BadAnnotationError: an annotation, or a slide's label, has a class that is neither configured nor ignored; two
            classes differ only in capitals or blanks; or a configured class is one that QuPath ignores.
    """
    _check_not_ignored(configured)
    classes = sorted({region.class_name for region in regions} - set(ignored))
    _check_look_alikes(configured or classes, regions)
    if not configured:
        return tuple(classes)
    for region in regions:
        if region.class_name not in configured and region.class_name not in ignored:
            raise BadAnnotationError(
                f"{region.where}: class {region.class_name!r} is not among the classes {', '.join(configured)}. "
                "Add it to `classes` or `ignore_classes` in the [tile] section of gemslide.toml."
            )
    return tuple(configured)


def _check_not_ignored(configured: Sequence[str]) -> None:
    stars = [name for name in configured if name.endswith(IGNORED_ENDING)]
    if stars:
        raise BadAnnotationError(
            f"`classes` in the [tile] section of gemslide.toml names {', '.join(map(repr, stars))}; QuPath ignores "
            f"classes whose names end in {IGNORED_ENDING}, and their outlines label no tile. Rename the class in "
            "QuPath, or remove it from `classes`."
        )


def _check_look_alikes(classes: Sequence[str], regions: Sequence[Region | SlideLabel]) -> None:
    first_like: dict[str, str] = {}
    for name in classes:
        first = first_like.setdefault(re.sub(r"[\s_]+", "", name.casefold()), name)
        if first != name:
            places = (next((r.where for r in regions if r.class_name == each), "`classes`") for each in (first, name))
            at_first, at_name = places
            raise BadAnnotationError(
                f"the classes {first!r} ({at_first}) and {name!r} ({at_name}) differ only in capitals or blanks, and "
                "would count as two. Rename one where it was drawn or entered, or name it in `ignore_classes` in the "
                "[tile] section of gemslide.toml."
            )


def label_tiles(
    regions: Sequence[Region],
    corners_xy0: NDArray[np.int64],
    side_px0: int,
    *,
    classes: Sequence[str],
    min_fraction: float,
    label_by: Literal["area", "centre"] = "area",
) -> TileLabels:
    """Label tiles.

    By area, a tile gets the class covering the largest share of it if that share is at least `min_fraction`; on a tie,
    the class that comes first. An outline takes its area from those that it lies within (`nesting.py`). By centre, a
    tile gets the class of the smallest outline that contains its centre.
    `fraction` is the share that the label's class covers; for a tile without a label, the largest share.

    Args:
        regions: also those of ignored classes, whose area gets no label.
        corners_xy0: (n, 2) top left corners.
        classes: those that label tiles.

    Raises:
        BadAnnotationError: outlines lie within one another in a way that takes minutes.
    """
    left, top = corners_xy0[:, 0], corners_xy0[:, 1]
    boxes = shapely.box(left, top, left + side_px0, top + side_px0)
    outlines, names = _outlines(regions)
    own = _innermost(outlines, names)
    covered = np.zeros((len(boxes), max(1, len(classes))), np.float32)
    for index, name in enumerate(classes):
        shapes = [area for area, of_class in zip(own, names, strict=True) if of_class == name and not area.is_empty]
        if shapes and len(boxes):
            covered[:, index] = _covered(boxes, _joined(shapes)) / float(side_px0) ** 2
    rows = np.arange(len(boxes))
    best = covered.argmax(1)
    if label_by == "area":
        class_index = np.where(covered[rows, best] >= min_fraction, best, -1)
    else:
        centres_xy0 = np.asarray(corners_xy0 + side_px0 / 2, np.float64)
        class_index = _class_at(outlines, names, centres_xy0, classes)
    shown = np.where(class_index >= 0, class_index, best)
    largest = covered.max(0, initial=0.0)[: len(classes)]
    return TileLabels(class_index, covered[rows, shown], largest)


def label_slide(label: str | None, num_tiles: int, classes: Sequence[str]) -> TileLabels:
    """Label all tiles of a slide with its label; if it has none, or an ignored one, no tile is labelled."""
    index = classes.index(label) if label is not None and label in classes else -1
    share = np.full(num_tiles, float(index >= 0), np.float32)
    largest = np.asarray(np.arange(len(classes)) == index, np.float32)
    return TileLabels(np.full(num_tiles, index, np.int64), share, largest)


def _joined(shapes: Sequence[BaseGeometry]) -> list[BaseGeometry]:
    """Areas that do not overlap and together cover what the shapes cover; those touching no other stay as they are."""
    every: NDArray[np.object_] = np.asarray(shapes)
    touches = _touches_another(every)
    return [*every[~touches], shapely.union_all(every[touches])]


def _touches_another(shapes: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Whether each shape has a point in common with another.

    The largest are tested first, and those already known to touch another are skipped, so that not every pair of
    thousands of nested shapes is tested.
    """
    tree, touches = shapely.STRtree(shapes), np.zeros(len(shapes), bool)
    waiting, at_once = np.argsort(-shapely.area(shapes), kind="stable"), 1
    while len(waiting):
        tested = waiting[:at_once]
        one, other = tree.query(shapes[tested], predicate="intersects")
        one = tested[one]
        touches[one[one != other]] = touches[other[one != other]] = True
        waiting, at_once = waiting[at_once:], min(2 * at_once, MAX_LOOKED_AT)
        waiting = waiting[~touches[waiting]]
    return touches


def _covered(boxes: NDArray[np.object_], areas: Sequence[BaseGeometry]) -> NDArray[np.float64]:
    """Area of each box inside the areas; pieces are looked up in a tree, so that many regions stay fast."""
    parts = [part for area in areas for part in polygons_of(area)]
    pieces: NDArray[np.object_] = np.asarray([piece for part in parts for piece in _cut_up(part)])
    piece_index, box_index = shapely.STRtree(boxes).query(pieces, predicate="intersects")
    overlap = np.empty(len(box_index))
    # Most pairs need no geometry: the box lies in the piece, or the piece (its bounds) in the box.
    shapely.prepare(pieces)
    whole_box = shapely.covers(pieces[piece_index], boxes[box_index])
    piece_bounds, box_bounds = shapely.bounds(pieces)[piece_index], shapely.bounds(boxes)[box_index]
    whole_piece = (piece_bounds[:, :2] >= box_bounds[:, :2]).all(1) & (piece_bounds[:, 2:] <= box_bounds[:, 2:]).all(1)
    overlap[whole_piece] = shapely.area(pieces)[piece_index[whole_piece]]
    overlap[whole_box] = shapely.area(boxes)[box_index[whole_box]]
    cut = ~whole_box & ~whole_piece
    overlap[cut] = shapely.area(shapely.intersection(pieces[piece_index[cut]], boxes[box_index[cut]]))
    return np.asarray(np.bincount(box_index, weights=overlap, minlength=len(boxes)), np.float64)


def _cut_up(polygon: shapely.Polygon) -> list[shapely.Polygon]:
    """The polygon in pieces of few vertices: halved across its longer side until they are small."""
    done, waiting = [], [(polygon, 0)]
    while waiting:
        part, halvings = waiting.pop()
        if shapely.get_num_coordinates(part) <= MAX_PIECE_VERTICES or halvings == MAX_HALVINGS:
            done.append(part)
            continue
        left, top, right, bottom = part.bounds
        middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
        is_wide = right - left >= bottom - top
        low = (left, top, middle_x, bottom) if is_wide else (left, top, right, middle_y)
        high = (middle_x, top, right, bottom) if is_wide else (left, middle_y, right, bottom)
        for half in (low, high):
            waiting += [(piece, halvings + 1) for piece in polygons_of(part.intersection(shapely.box(*half)))]
    return done


def _outlines(regions: Sequence[Region]) -> tuple[list[Polygon], list[str]]:
    """The polygons of all regions, and their classes."""
    parts = [(part, region.class_name) for region in regions for part in polygons_of(region.geometry)]
    return [part for part, _ in parts], [name for _, name in parts]


def _innermost(outlines: Sequence[Polygon], names: Sequence[str]) -> list[BaseGeometry]:
    with within(Limits.for_corners(int(shapely.get_num_coordinates(outlines).sum())), "the annotations"):
        return innermost(outlines, names)


def _class_at(
    outlines: Sequence[Polygon], names: Sequence[str], points_xy0: NDArray[np.float64], classes: Sequence[str]
) -> NDArray[np.int64]:
    """Per point the class index of the smallest outline around it, -1 where there is none or its class is ignored."""
    number_of = {name: index for index, name in enumerate(classes)}
    class_index = np.full(len(points_xy0), _NOT_FOUND, dtype=np.int64)
    waiting = np.arange(len(points_xy0))
    tree = shapely.STRtree(np.asarray(shapely.points(points_xy0)))
    for index in np.argsort(filled_areas(outlines), kind="stable").tolist():
        if not len(waiting):
            break
        inside = waiting[tree.query(outlines[index], predicate="intersects")]
        # The smallest come first; points in one of them are not tested against all the others again.
        class_index[inside[class_index[inside] == _NOT_FOUND]] = number_of.get(names[index], -1)
        are_left = class_index[waiting] == _NOT_FOUND
        if 2 * are_left.sum() < len(waiting):
            waiting = waiting[are_left]
            tree = shapely.STRtree(np.asarray(shapely.points(points_xy0[waiting])))
    return np.maximum(class_index, -1)
