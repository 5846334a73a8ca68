"""Annotations that others changed or deleted: their authors are told once, and can restore what they had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, literal, select

from pipeline.ledger import PROJECT_LOG, Change, Ledger, append_to_project, slide_subject
from pipeline.ledger.tables import audit
from pipeline.review.annotations.annotation import Annotation, annotation_of
from pipeline.review.rows.tables import annotation, annotation_revision
from training.foundation.reading import parse_json

NOTED = "change of an annotation noted"
"""Action of the log entry by which an author confirms that they know of a change."""
MAX_NOTICES = 100


def changed_by_others(ledger: Ledger, slide_id: str, author: str) -> list[Annotation]:
    """The author's annotations that somebody else changed or deleted last, and of which they have not been told; the
    last `MAX_NOTICES` of them.

    Marks and answers go with what they belong to, and are not listed.

    Raises:
        GemslideError: the ledger is unavailable.
    """
    with ledger.database.read() as connection:
        ids = [name for _, name in _not_noted(connection, author, annotation.c.slide_id == slide_id)][:MAX_NOTICES]
        rows = select(annotation).where(annotation.c.slide_id == slide_id, annotation.c.annotation_id.in_(ids))
        newest_first = rows.order_by(annotation.c.change.desc(), annotation.c.annotation_id)
        return [annotation_of(row) for row in connection.execute(newest_first).mappings()]


def slides_with_notices(ledger: Ledger, author: str) -> list[str]:
    """Slides on which `changed_by_others` lists annotations. Raises GemslideError: the ledger is unavailable."""
    with ledger.database.read() as connection:
        return sorted({slide_id for slide_id, _ in _not_noted(connection, author)})


def note_changes(ledger: Ledger, slide_id: str, author: str, ids: Sequence[str]) -> None:
    """Confirm that the author knows of changes by others; unknown ids are ignored."""
    wanted = set(ids)
    known = [one for one in changed_by_others(ledger, slide_id, author) if one.annotation_id in wanted]
    if not known:
        return
    with ledger.database.write() as connection:
        subject = slide_subject(slide_id)
        append_to_project(
            connection,
            [
                Change(author, NOTED, subject, details={"annotation": one.annotation_id, "revision": one.revision})
                for one in known
            ],
        )


def last_own_revision(ledger: Ledger, slide_id: str, annotation_id: str, author: str) -> Annotation | None:
    """The annotation as its author saved it last, from its earlier revisions; None: there is no such revision."""
    rows = (
        select(annotation_revision)
        .where(
            annotation_revision.c.slide_id == slide_id,
            annotation_revision.c.annotation_id == annotation_id,
            annotation_revision.c.changed_by == author,
            annotation_revision.c.state == "live",
        )
        .order_by(annotation_revision.c.revision.desc())
        .limit(1)
    )
    with ledger.database.read() as connection:
        row = connection.execute(rows).mappings().one_or_none()
    return None if row is None else annotation_of(row)


def _not_noted(connection: Connection, author: str, *where: ColumnElement[bool]) -> list[tuple[str, str]]:
    """(slide, annotation) of each change by others that the author has not noted, the newest first."""
    changed = (
        annotation.c.author == author, annotation.c.changed_by != author, annotation.c.parent_id.is_(None), *where
    )  # fmt: skip
    rows = (
        select(annotation.c.slide_id, annotation.c.annotation_id, annotation.c.revision)
        .where(*changed)
        .order_by(annotation.c.change.desc(), annotation.c.annotation_id)
    )
    found = connection.execute(rows).all()
    if not found:
        return []
    subjects = select(literal(slide_subject("")) + annotation.c.slide_id).where(*changed)
    noted = _noted(connection, author, subjects)
    return [(slide_id, name) for slide_id, name, n in found if (slide_subject(slide_id), name, n) not in noted]


def _noted(connection: Connection, author: str, subjects: Select[str]) -> set[tuple[str | None, Any, Any]]:
    """(subject, annotation, revision) of the changes that the author has noted."""
    rows = select(audit.c.subject, audit.c.details).where(
        audit.c.study_id == PROJECT_LOG,
        audit.c.subject.in_(subjects),
        audit.c.action == NOTED,
        audit.c.actor == author,
    )
    noted = set()
    for subject, text in connection.execute(rows):
        try:
            details = parse_json(text or "")
            noted.add((subject, details["annotation"], details["revision"]))
        except (ValueError, KeyError, TypeError):
            continue  # a changed entry, which its hash reveals
    return noted
