"""What is drawn on a slide: all of it, or what has changed since somebody last looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select

from pipeline.palettes import CLASS_COLOURS
from pipeline.review.annotation import Annotation, annotation_of
from pipeline.review.tables import annotated_slide, annotation, annotation_class
from pipeline.study import Ledger


@dataclass(frozen=True)
class Changes:
    """What has changed on a slide.

    Attributes:
        change: the slide's counter; the next question is about changes after it.
        annotations: those that changed, deleted ones too, in the order of their changes; None where there are more than
            were asked for.
    """

    change: int
    annotations: tuple[Annotation, ...] | None


def annotations_of(ledger: Ledger, slide_id: str, *, with_deleted: bool = False) -> list[Annotation]:
    """All annotations of a slide, in the order in which they changed last. Raises GemslideError: the ledger is away."""
    rows = select(annotation).where(annotation.c.slide_id == slide_id).order_by(*_IN_ORDER)
    if not with_deleted:
        rows = rows.where(annotation.c.state == "live")
    with ledger.database.read() as connection:
        return [annotation_of(row) for row in connection.execute(rows).mappings()]


def some_annotations(ledger: Ledger, slide_id: str, ids: Sequence[str]) -> list[Annotation]:
    """The live ones of at most some hundred ids, in the order of the ids."""
    rows = select(annotation).where(
        annotation.c.slide_id == slide_id, annotation.c.annotation_id.in_(ids), annotation.c.state == "live"
    )
    with ledger.database.read() as connection:
        found = {row["annotation_id"]: annotation_of(row) for row in connection.execute(rows).mappings()}
    return [found[each] for each in ids if each in found]


def changes_since(ledger: Ledger, slide_id: str, change: int, *, most: int = 1000) -> Changes:
    """What has changed on a slide after its counter stood at `change`; all of one moment."""
    rows = rows_since(select(annotation), slide_id, change).limit(most + 1)
    with ledger.database.read() as connection:
        now = connection.execute(counter_of(slide_id)).scalar_one_or_none() or 0
        found = connection.execute(rows).mappings().all() if now > change else []
    return Changes(now, None if len(found) > most else tuple(annotation_of(row) for row in found))


def class_colours(ledger: Ledger) -> Mapping[str, str]:
    """Every class that the project has used, in the order of its first use, with its colour as "RRGGBB"."""
    rows = select(annotation_class.c.class_name).order_by(annotation_class.c.ordinal, annotation_class.c.class_name)
    with ledger.database.read() as connection:
        names = connection.execute(rows).scalars().all()
    return {name: CLASS_COLOURS[index % len(CLASS_COLOURS)] for index, name in enumerate(names)}


def find_annotations(ledger: Ledger, slide_id: str, words: Sequence[str], *, most: int = 100) -> list[Annotation]:
    """The live ones whose class, note and author together hold every word, however written; latest changes first."""
    text = func.lower(func.coalesce(annotation.c.class_name, "") + " " + annotation.c.note + " " + annotation.c.author)
    rows = (
        select(annotation)
        .where(annotation.c.slide_id == slide_id, annotation.c.state == "live")
        .where(*(text.contains(word.lower(), autoescape=True) for word in words))
        .order_by(annotation.c.change.desc(), annotation.c.annotation_id)
        .limit(most)
    )
    with ledger.database.read() as connection:
        return [annotation_of(row) for row in connection.execute(rows).mappings()]


_IN_ORDER = (annotation.c.change, annotation.c.annotation_id)


def rows_since(rows: Select[Any], slide_id: str, change: int) -> Select[Any]:
    """Of a selection of annotations those of a slide that changed after `change`, in the order of changes."""
    return rows.where(annotation.c.slide_id == slide_id, annotation.c.change > change).order_by(*_IN_ORDER)


def counter_of(slide_id: str) -> Select[tuple[int]]:
    """The slide's counter; no row for a slide on which nobody ever drew."""
    return select(annotated_slide.c.change).where(annotated_slide.c.slide_id == slide_id)
