"""Kinds of annotation: drawings, measurements, counts, answers and bookmarks, and what each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KindRule:
    """Requirements of a kind.

    Attributes:
        dimension: of its shape: 0 points, 1 lines, 2 areas.
        parents: kinds of the annotation that it belongs to; empty: it stands alone.
        has_class, has_note, has_view: whether it must have one.
        max_points: corners of its shape; None: as many as any annotation.
        may_leave_slide: whether it may extend beyond the slide. A counting circle keeps its size at the edge.
    """

    dimension: int
    parents: tuple[str, ...] = ()
    has_class: bool = False
    has_note: bool = False
    has_view: bool = False
    max_points: int | None = None
    may_leave_slide: bool = False


_POINT, _LINE, _AREA = 0, 1, 2
_ALONE: Mapping[str, KindRule] = {
    "point": KindRule(_POINT),
    "line": KindRule(_LINE),
    "rectangle": KindRule(_AREA),
    "ellipse": KindRule(_AREA),
    "polygon": KindRule(_AREA),
    "freehand": KindRule(_AREA),
    "ruler": KindRule(_LINE),
    "area": KindRule(_AREA),
    "arrow": KindRule(_LINE, max_points=2),
    "text": KindRule(_POINT, has_note=True, max_points=1),
    "count": KindRule(_AREA, may_leave_slide=True),
    "bookmark": KindRule(_POINT, has_view=True, max_points=1),
}
KIND_RULES: Mapping[str, KindRule] = {
    **_ALONE,
    "mark": KindRule(_POINT, parents=("count",), has_class=True, max_points=1),
    "reply": KindRule(_POINT, parents=tuple(_ALONE), has_note=True, max_points=1),
}
"""A rectangle or ellipse whose corners were moved one by one is a polygon. A `ruler` measures a length and an `area` an
area. A `count` is the area in which objects are counted, and a `mark` one of them; a `reply` answers an annotation."""
KINDS = tuple(KIND_RULES)
APART_KINDS = ("ruler", "area", "arrow", "text", "count", "bookmark")
"""Drawn one by one with labels, or listed; the browser gets them by themselves, and the others in tiles of outlines."""
TILED_KINDS = tuple(kind for kind in KINDS if kind not in APART_KINDS and kind != "reply")
