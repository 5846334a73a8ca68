"""The outlines of a slide's annotations in memory, kept up to date by the slide's change counter."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import Point
from shapely.geometry.base import BaseGeometry

from pipeline.ledger import Ledger
from pipeline.review import OutlineRow, outlines_since

MAX_BYTES = 256 << 20
"""Of geometry as text, for all slides together; a parsed shape takes about as much."""
MAX_SLIDES = 16
MAX_CLASSES = 254
"""Classes of a slide that are distinguished in tiles."""
MOST_HIT = 20
"""Most annotations that one click returns."""


@dataclass(frozen=True)
class Outlines:
    """The live annotations of a slide at one moment. Arrays have one entry per annotation.

    Attributes:
        change: the slide's change counter.
        bounds_px0: float64 (n, 4): left, top, right, bottom in level-0 pixels.
        ids: of the annotations.
        class_names: None where an annotation has no class.
        shapes: GeoJSON text, or the shape that was parsed from it.
    """

    change: int
    bounds_px0: NDArray[np.float64]
    ids: NDArray[np.object_]
    class_names: NDArray[np.object_]
    shapes: NDArray[np.object_]
    bytes_: int

    @cached_property
    def counts(self) -> Mapping[str | None, int]:
        """Number of annotations of each class."""
        return Counter(self.class_names.tolist())

    @cached_property
    def class_places(self) -> tuple[list[str | None], NDArray[np.uint8]]:
        """Names of classes, and each annotation's index in them. If there are too many, the rarest share the last."""
        names = sorted(self.counts, key=lambda name: (-self.counts[name], name or ""))[:MAX_CLASSES]
        index_of = {name: index for index, name in enumerate(names)}
        indices = [index_of.get(name, MAX_CLASSES) for name in self.class_names.tolist()]
        return [*names, None] if len(self.counts) > MAX_CLASSES else names, np.array(indices, np.uint8)

    def within(self, left: float, top: float, right: float, bottom: float) -> NDArray[np.intp]:
        """Indices of the annotations whose bounds intersect a box in level-0 pixels."""
        lefts, tops, rights, bottoms = self.bounds_px0.T
        return np.flatnonzero((lefts <= right) & (rights >= left) & (tops <= bottom) & (bottoms >= top))

    def shapes_of(self, indices: NDArray[np.intp]) -> NDArray[np.object_]:
        """Shapes of the annotations at `indices`, parsed once."""
        shapes = self.shapes[indices]  # a copy: other threads replace texts by shapes meanwhile
        is_text = np.fromiter((isinstance(shape, str) for shape in shapes), bool, len(shapes))
        if is_text.any():
            shapes[is_text] = shapely.from_geojson(shapes[is_text])
            self.shapes[indices] = shapes
        return shapes

    def at(self, x_px0: float, y_px0: float, within_px0: float) -> list[str]:
        """Ids of the annotations that contain a point or are within `within_px0` of it, smallest first."""
        near = self.within(x_px0 - within_px0, y_px0 - within_px0, x_px0 + within_px0, y_px0 + within_px0)
        sides = self.bounds_px0[near]
        near = near[np.argsort((sides[:, 2] - sides[:, 0]) * (sides[:, 3] - sides[:, 1]), kind="stable")]
        ids: list[str] = []
        for start in range(0, len(near), 500):  # where thousands overlap, the first are enough
            batch = near[start : start + 500]
            is_hit = shapely.distance(self.shapes_of(batch), Point(x_px0, y_px0)) <= within_px0
            ids += self.ids[batch[is_hit]].tolist()
            if len(ids) >= MOST_HIT:
                break
        return ids[:MOST_HIT]


def _empty() -> Outlines:
    none = np.empty(0, object)
    return Outlines(0, np.empty((0, 4)), none, none, none, 0)


class OutlineCache:
    """The outlines of the most recently requested slides."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slides: OrderedDict[str, _Slide] = OrderedDict()

    def outlines(self, ledger: Ledger | None, slide_id: str) -> Outlines:
        """A slide's outlines as the ledger has them now. Raises GemslideError: the ledger is unavailable."""
        if ledger is None:
            return _empty()
        with self._lock:
            slide = self._slides.setdefault(slide_id, _Slide(slide_id))
            self._slides.move_to_end(slide_id)
        outlines = slide.up_to_date(ledger)
        with self._lock:
            while len(self._slides) > 1 and (
                len(self._slides) > MAX_SLIDES or sum(kept.now.bytes_ for kept in self._slides.values()) > MAX_BYTES
            ):
                self._slides.popitem(last=False)
        return outlines


class _Slide:
    def __init__(self, slide_id: str) -> None:
        self._slide_id = slide_id
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self.now = _empty()

    def up_to_date(self, ledger: Ledger) -> Outlines:
        with self._lock:
            if self._ledger is not ledger:  # another database, whose counter is unrelated
                self._ledger, self.now = ledger, _empty()
            change, rows = outlines_since(ledger, self._slide_id, self.now.change)
            if change != self.now.change:
                self.now = _merged(self.now, change, rows)
            return self.now


_NONE = (np.empty(0, object),) * len(OutlineRow._fields)


def _merged(before: Outlines, change: int, rows: Sequence[OutlineRow]) -> Outlines:
    changed, states, class_names, *sides, geometry = map(_objects, zip(*rows, strict=True)) if rows else _NONE
    are_changed = set(changed)
    stays = np.fromiter((id_ not in are_changed for id_ in before.ids), bool, len(before.ids))
    live = states == "live"
    bounds = np.stack(sides, 1).astype(np.float64)[live]
    shapes = np.concatenate([before.shapes[stays], geometry[live]])
    gone = sum(_bytes_of(shape) for shape in before.shapes[~stays])
    return Outlines(
        change,
        np.concatenate([before.bounds_px0[stays], bounds]),
        np.concatenate([before.ids[stays], changed[live]]),
        np.concatenate([before.class_names[stays], class_names[live]]),
        shapes,
        before.bytes_ - gone + sum(map(len, geometry[live])),
    )


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _bytes_of(shape: str | BaseGeometry) -> int:
    return len(shape) if isinstance(shape, str) else 32 * int(shapely.get_num_coordinates(shape))
