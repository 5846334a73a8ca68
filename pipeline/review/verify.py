"""Check of people's findings on slides against the log: `verify_ledger` in `study/proof/verify.py` includes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, select, true

from pipeline.errors import DamagedStoreError
from pipeline.ledger.database import Database
from pipeline.ledger.rows import PROJECT_LOG, STUDY_BEGUN, row_sha256, study_subject
from pipeline.ledger.tables import audit, metadata
from pipeline.review.annotations.entries import CLASS_ADDED
from pipeline.review.annotations.proof import changed_annotations
from pipeline.review.judging.coverage_store import LOOKED
from pipeline.review.judging.slides import REVIEWED
from pipeline.review.registrations.saving import REGISTERED, UNREGISTERED
from pipeline.review.rows.tables import (
    HOTSPOT_STATES,
    annotation_class,
    coverage,
    hotspot_review,
    registration,
    review,
)
from pipeline.review.rows.view_context import key_sha256
from training.foundation.reading import parse_json

_OF_SLIDES = (hotspot_review, coverage, review)
_TABLES: Mapping[str, Table] = {
    **{f"hotspot {state}": hotspot_review for state in HOTSPOT_STATES},
    LOOKED: coverage,
    REVIEWED: review,
    CLASS_ADDED: annotation_class,
    REGISTERED: registration,
    UNREGISTERED: registration,
}
"""The table whose rows an action's entries are about; other actions say nothing of these rows."""
_STUDY = metadata.tables["study"]
MAX_FINDINGS = 100
_AT_ONCE = 5_000


def verify_reviews(database: Database, study_id: str) -> list[str]:
    """Find rows that were changed, added or deleted without a log entry; an empty list means none.

    The log itself is checked by `verify_log`, and trusted here.

    Args:
        study_id: the study of the log; `PROJECT_LOG` for reviews outside studies, and for rows that belong to no study.
    """
    with database.read() as connection:
        logged = dict(_logged(connection, study_id))
        findings: list[str] = []
        for table in _OF_SLIDES:
            findings += _changed(connection, table, table.c.study_id == study_id, logged)
        if study_id != PROJECT_LOG:
            findings += _unlogged_start(connection, study_id)
        else:
            for table in (annotation_class, registration):
                findings += _changed(connection, table, true(), logged)
            findings += changed_annotations(connection)
            findings += _changed_studies(connection)
            findings += _find_orphans(connection)
    findings += [f"{name} {key[:12]}…: was deleted from the ledger" for name, key in logged]
    return findings[:MAX_FINDINGS]


def _logged(connection: Connection, study_id: str) -> Iterator[tuple[tuple[str, str], str]]:
    """(table, hash of the key) and the row's hash, of every entry about these tables, oldest first."""
    chosen = select(audit.c.action, audit.c.details).where(
        audit.c.study_id == study_id, audit.c.action.in_(_TABLES), audit.c.details.like('%"table":%')
    )
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(chosen.order_by(audit.c.seq))
    for action, text in rows:
        try:
            details = parse_json(text or "")
            if details["table"] == _TABLES[action].name:
                yield (str(details["table"]), str(details["key_sha256"])), str(details["row_sha256"])
        except (ValueError, KeyError, TypeError):
            continue  # a changed entry, which its hash reveals


def _changed(
    connection: Connection, table: Table, chosen: ColumnElement[bool], logged: dict[tuple[str, str], str]
) -> Iterator[str]:
    """Findings in one table; rows that match the log are removed from `logged`."""
    rows = connection.execution_options(yield_per=_AT_ONCE).execute(select(table).where(chosen))
    for row in rows.mappings():
        values: dict[str, Any] = dict(row)
        try:
            logged_sha256 = logged.pop((table.name, key_sha256(table, values)), None)
        except DamagedStoreError as error:
            yield f"{_describe_row(table, values)}: was changed without an entry in the log: {error}"
            continue
        if logged_sha256 is None:
            yield f"{_describe_row(table, values)}: is in the ledger, but no log entry created it"
        elif problem := change_of_row(table, values, logged_sha256):
            yield f"{_describe_row(table, values)}: {problem}"


def change_of_row(table: Table, row: Mapping[str, Any], logged_sha256: str) -> str | None:
    """How a row differs from what the log says of it; None if it does not."""
    try:
        is_same = row_sha256(table, row) == logged_sha256
    except DamagedStoreError as error:
        return f"was changed without an entry in the log: {error}"
    return None if is_same else "was changed without an entry in the log"


def _changed_studies(connection: Connection) -> Iterator[str]:
    """Studies that were deleted with their logs, or whose start was never logged."""
    begun = select(audit.c.subject).where(audit.c.study_id == PROJECT_LOG, audit.c.action == STUDY_BEGUN)
    logged = {subject for subject in connection.scalars(begun) if isinstance(subject, str)}
    stored = {
        study_subject(study_id) for study_id in connection.scalars(select(_STUDY.c.study_id)) if study_id != PROJECT_LOG
    }
    yield from (f"{subject}: was deleted from the ledger with its log" for subject in sorted(logged - stored))
    for subject in sorted(stored - logged):
        yield f"{subject}: {_NO_START}"


def _unlogged_start(connection: Connection, study_id: str) -> Iterator[str]:
    """A finding if the project's log, which would reveal that this study was deleted, does not name it."""
    begun = (audit.c.study_id == PROJECT_LOG, audit.c.action == STUDY_BEGUN)
    if study_subject(study_id) not in connection.scalars(select(audit.c.subject).where(*begun)).all():
        yield f"{study_subject(study_id)}: {_NO_START}"


_NO_START = "is in the ledger, but the project's log has no entry for its start"


def _find_orphans(connection: Connection) -> Iterator[str]:
    """Rows of a study that the ledger does not have, which no check of a study's log would cover."""
    known = select(_STUDY.c.study_id)
    for table in metadata.sorted_tables:
        if table is not _STUDY and "study_id" in table.c:
            unknown = select(table.c.study_id).where(table.c.study_id.not_in(known)).distinct()
            for study_id in connection.scalars(unknown.limit(MAX_FINDINGS)):
                yield f"{table.name}: has rows of study {study_id!s:.64}, which the ledger does not have"


def _describe_row(table: Table, row: Mapping[str, Any]) -> str:
    if table is annotation_class:
        return f"annotation class {row['class_name']!s:.60}"
    if table is registration:
        pair = f"slides {row['moving_id']!s:.64} and {row['fixed_id']!s:.64}"
        return f"registration of {pair}, revision {row['revision']!s:.20}"
    return f"{table.name} of {row['person']!s:.60} at slide {row['slide_id']!s:.64}"
