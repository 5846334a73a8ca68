"""Outlines of many annotations at once: the columns that drawing them needs, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select

from pipeline.ledger import Ledger
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
    """The slide's counter, and what has changed after `change`, deleted ones too; all of one moment.

    Raises:
        GemslideError: the ledger is away.
    """
    columns = (annotation.c[name] for name in OutlineRow._fields)
    # In no order: to sort a hundred thousand geometries takes longer than to read them.
    rows = select(*columns).where(annotation.c.slide_id == slide_id, annotation.c.change > change)
    with ledger.database.read() as connection:
        now = connection.execute(counter_of(slide_id)).scalar_one_or_none() or 0
        found = connection.execute(rows).all() if now > change else []
    return now, [OutlineRow._make(row) for row in found]
