"""Rows of the table `annotation` by their ids, and by the annotation that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from pipeline.errors import BadAnnotationError
from pipeline.review.annotations.kinds import KIND_RULES
from pipeline.review.rows.tables import annotation

Row = Mapping[str, Any]
_AT_ONCE = 500


def stored_rows(connection: Connection, slide_id: str, ids: Sequence[str]) -> dict[str, Row]:
    """A slide's rows with these ids, deleted ones included."""
    stored: dict[str, Row] = {}
    for start in range(0, len(ids), _AT_ONCE):
        with_ids = annotation.c.annotation_id.in_(ids[start : start + _AT_ONCE])
        rows = select(annotation).where(annotation.c.slide_id == slide_id, with_ids)
        stored |= {row["annotation_id"]: dict(row) for row in connection.execute(rows).mappings()}
    return stored


def rows_belonging_to(connection: Connection, slide_id: str, ids: Sequence[str]) -> Iterator[Row]:
    """A slide's rows whose parents have these ids, deleted ones included."""
    for start in range(0, len(ids), _AT_ONCE):
        of_these = annotation.c.parent_id.in_(ids[start : start + _AT_ONCE])
        rows = select(annotation).where(annotation.c.slide_id == slide_id, of_these)
        yield from [dict(row) for row in connection.execute(rows).mappings()]


def check_parents(connection: Connection, slide_id: str, rows: Sequence[Row], present: Mapping[str, Row]) -> None:
    """Check that live rows belong to live annotations of a matching kind, now or once these rows are written.

    Args:
        rows: about to be written.
        present: those of them that are stored, as they are now.

    Raises:
        BadAnnotationError: one belongs to none, to a deleted one, to one of the wrong kind, or to another than before.
    """
    wanted = {row["parent_id"] for row in rows if row["parent_id"] is not None and row["state"] == "live"}
    after = stored_rows(connection, slide_id, sorted(wanted))
    for row in rows:
        stored = present.get(row["annotation_id"])
        if stored is None or stored["revision"] == row["revision"]:  # otherwise the stored one is kept
            after[row["annotation_id"]] = row
    for row in rows:
        stored = present.get(row["annotation_id"])
        if stored is not None and stored["parent_id"] != row["parent_id"]:
            raise BadAnnotationError(
                f"annotation {row['annotation_id']!r:.60}: the annotation that it belongs to cannot be changed."
            )
        if row["parent_id"] is not None and row["state"] == "live":
            _check_parent(row, after.get(row["parent_id"]))


def _check_parent(row: Row, parent: Row | None) -> None:
    where, kinds = f"annotation {row['annotation_id']!r:.60}", KIND_RULES[row["kind"]].parents
    if parent is None or parent["state"] != "live":
        belongs_to = kinds[0] if len(kinds) == 1 else "annotation"
        raise BadAnnotationError(f"{where}: the {belongs_to} that it belongs to was deleted, or is on another slide.")
    if parent["kind"] not in kinds:
        belongs_to = f"a {kinds[0]}" if len(kinds) == 1 else "a drawing or measurement"
        raise BadAnnotationError(
            f"{where}: a {row['kind']} belongs to {belongs_to}, and this is one of kind {parent['kind']!r}."
        )
