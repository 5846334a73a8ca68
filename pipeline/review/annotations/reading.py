"""Queries of the annotations on a slide: all of them, or the changes since an earlier query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from pipeline.ledger import Ledger
from pipeline.palettes import CLASS_COLOURS
from pipeline.review.annotations.annotation import Annotation, annotation_of
from pipeline.review.rows.tables import annotated_slide, annotation, annotation_class


@dataclass(frozen=True)
class Changes:
    """Changes to the annotations of a slide.

    Attributes:
        change: the slide's counter; the next query asks for changes after it.
        annotations: those that changed, including deleted ones, in the order of their changes; None if there are more
            than requested.
    """

    change: int
    annotations: tuple[Annotation, ...] | None


def annotations_of(
    ledger: Ledger, slide_id: str, *, with_deleted: bool = False, kinds: Sequence[str] | None = None
) -> list[Annotation]:
    """Annotations of a slide, in order of their last changes.

    Args:
        kinds: those wanted; None: all.

    Raises:
        GemslideError: the ledger is unavailable.
    """
    rows = select(annotation).where(annotation.c.slide_id == slide_id).order_by(*_IN_ORDER)
    if kinds is not None:
        rows = rows.where(annotation.c.kind.in_(kinds))
    if not with_deleted:
        rows = rows.where(annotation.c.state == "live")
    with ledger.database.read() as connection:
        return [annotation_of(row) for row in connection.execute(rows).mappings()]


def slides_with(ledger: Ledger, kind: str) -> list[str]:
    """Slides that have live annotations of a kind, by name. Raises GemslideError: the ledger is unavailable."""
    rows = select(annotation.c.slide_id).where(annotation.c.state == "live", annotation.c.kind == kind).distinct()
    with ledger.database.read() as connection:
        return sorted(connection.execute(rows).scalars())


def latest_annotations(ledger: Ledger, slide_id: str, kinds: Sequence[str], *, most: int) -> list[Annotation]:
    """Live annotations of some kinds, at most `most`, latest changes first."""
    rows = (
        select(annotation)
        .where(annotation.c.slide_id == slide_id, annotation.c.state == "live", annotation.c.kind.in_(kinds))
        .order_by(annotation.c.change.desc(), annotation.c.annotation_id)
        .limit(most)
    )
    with ledger.database.read() as connection:
        return [annotation_of(row) for row in connection.execute(rows).mappings()]


def some_annotations(
    ledger: Ledger, slide_id: str, ids: Sequence[str], *, with_deleted: bool = False
) -> list[Annotation]:
    """Annotations with these ids, a few hundred at most, in the order of the ids."""
    rows = select(annotation).where(annotation.c.slide_id == slide_id, annotation.c.annotation_id.in_(ids))
    if not with_deleted:
        rows = rows.where(annotation.c.state == "live")
    with ledger.database.read() as connection:
        by_id = {row["annotation_id"]: annotation_of(row) for row in connection.execute(rows).mappings()}
    return [by_id[annotation_id] for annotation_id in ids if annotation_id in by_id]


def replies_to(ledger: Ledger, slide_id: str, annotation_id: str, *, most: int = 200) -> list[Annotation]:
    """Answers under an annotation, oldest first."""
    rows = (
        select(annotation)
        .where(annotation.c.slide_id == slide_id, annotation.c.parent_id == annotation_id)
        .where(annotation.c.state == "live", annotation.c.kind == "reply")
        .order_by(annotation.c.made_utc, annotation.c.annotation_id)
        .limit(most)
    )
    with ledger.database.read() as connection:
        return [annotation_of(row) for row in connection.execute(rows).mappings()]


def change_of(ledger: Ledger, slide_id: str) -> int:
    """The slide's counter; 0 for one that was never annotated."""
    with ledger.database.read() as connection:
        return connection.execute(counter_of(slide_id)).scalar_one_or_none() or 0


def changes_since(ledger: Ledger, slide_id: str, change: int, *, most: int = 1000) -> Changes:
    """Changes to a slide's annotations since its counter was at `change`, all from one moment."""
    rows = rows_since(select(annotation), slide_id, change).limit(most + 1)
    with ledger.database.read() as connection:
        now = connection.execute(counter_of(slide_id)).scalar_one_or_none() or 0
        changed = connection.execute(rows).mappings().all() if now > change else []
    return Changes(now, None if len(changed) > most else tuple(annotation_of(row) for row in changed))


def class_colours(ledger: Ledger, may_see: Callable[[str], bool] | None = None) -> Mapping[str, str]:
    """Every class that the project has used, in the order of its first use, with its colour as "RRGGBB".

    Args:
        may_see: whether a slide's classes may be named; None: all may. Colours are those over all classes.
    """
    rows = select(annotation_class.c.class_name).order_by(annotation_class.c.ordinal, annotation_class.c.class_name)
    with ledger.database.read() as connection:
        names = connection.execute(rows).scalars().all()
        used = None if may_see is None else _classes_on(connection, may_see)
    return {
        name: CLASS_COLOURS[index % len(CLASS_COLOURS)]
        for index, name in enumerate(names)
        if used is None or name in used
    }


def _classes_on(connection: Connection, may_see: Callable[[str], bool]) -> set[str]:
    """Classes of the annotations on slides that may be seen."""
    slide_ids = connection.execute(select(annotated_slide.c.slide_id)).scalars().all()
    visible = [slide_id for slide_id in slide_ids if may_see(slide_id)]
    names: set[str] = set()
    for start in range(0, len(visible), _AT_ONCE):
        on_these = annotation.c.slide_id.in_(visible[start : start + _AT_ONCE])
        names |= set(connection.execute(select(annotation.c.class_name).where(on_these).distinct()).scalars())
    return names


_AT_ONCE = 500


def find_annotations(ledger: Ledger, slide_id: str, words: Sequence[str], *, most: int = 100) -> list[Annotation]:
    """Live annotations whose class, note and author together contain every word, in any case; latest changes first."""
    rows = (
        select(annotation)
        .where(annotation.c.slide_id == slide_id, annotation.c.state == "live")
        .where(*has_words(words))
        .order_by(annotation.c.change.desc(), annotation.c.annotation_id)
        .limit(most)
    )
    with ledger.database.read() as connection:
        return [annotation_of(row) for row in connection.execute(rows).mappings()]


def has_words(words: Sequence[str]) -> list[ColumnElement[bool]]:
    """Conditions of a selection: class, note and author together contain every word, in any case."""
    text = func.lower(func.coalesce(annotation.c.class_name, "") + " " + annotation.c.note + " " + annotation.c.author)
    return [text.contains(word.lower(), autoescape=True) for word in words]


_IN_ORDER = (annotation.c.change, annotation.c.annotation_id)


def rows_since(rows: Select[Any], slide_id: str, change: int) -> Select[Any]:
    """Restrict a selection to a slide's annotations that changed after `change`, in the order of changes."""
    return rows.where(annotation.c.slide_id == slide_id, annotation.c.change > change).order_by(*_IN_ORDER)


def counter_of(slide_id: str) -> Select[int]:
    """The slide's counter; no row for a slide that was never annotated."""
    return select(annotated_slide.c.change).where(annotated_slide.c.slide_id == slide_id)
