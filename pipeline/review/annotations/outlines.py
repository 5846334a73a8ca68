"""Outlines of many annotations at once: only the columns needed to draw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select

from pipeline.ledger import Ledger
from pipeline.review.annotations.kinds import TILED_KINDS
from pipeline.review.annotations.reading import counter_of
from pipeline.review.rows.tables import annotation


class OutlineRow(NamedTuple):
    """One annotation, in level-0 pixels; `geometry` is GeoJSON text."""

    annotation_id: str
    state: str
    class_name: str | None
    left_px0: float
    top_px0: float
    right_px0: float
    bottom_px0: float
    geometry: str


def outlines_since(ledger: Ledger, slide_id: str, change: int) -> tuple[int, Sequence[OutlineRow]]:
    """The slide's counter, and annotations of `TILED_KINDS` changed after `change`, including deleted ones, from one
    moment.

    Raises:
        GemslideError: the ledger is unavailable.
    """
    columns = (annotation.c[name] for name in OutlineRow._fields)
    # Unsorted: sorting a hundred thousand geometries takes longer than reading them.
    rows = select(*columns).where(annotation.c.slide_id == slide_id, annotation.c.change > change)
    rows = rows.where(annotation.c.kind.in_(TILED_KINDS))
    with ledger.database.read() as connection:
        now = connection.execute(counter_of(slide_id)).scalar_one_or_none() or 0
        changed = connection.execute(rows).all() if now > change else []
    return now, [OutlineRow._make(row) for row in changed]
