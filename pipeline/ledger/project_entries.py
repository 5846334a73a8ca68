"""Adding to the project's log, which begins with its first entry."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.ledger.chain import FIRST, Change, append, canonical, digest
from pipeline.ledger.rows import LOG_BEGUN, PROJECT_LOG, STUDY_SUBJECT, row_sha256
from pipeline.ledger.tables import study


def append_to_project(connection: Connection, changes: Sequence[Change]) -> None:
    """Add entries in the transaction that makes the changes. Other writers of the project's log wait until it ends."""
    if changes:
        _begin(connection, changes[0].actor)
        append(connection, PROJECT_LOG, changes)


def _begin(connection: Connection, actor: str) -> None:
    """Begin the log with the project's first change."""
    row = {
        "study_id": PROJECT_LOG,
        "state": "running",
        "version": 1,
        "protocol": canonical({}),
        "protocol_sha256": digest({}),
        "manifest_sha256": digest([]),
    }
    values = row | {"audit_seq": 0, "audit_hash": FIRST}
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    if connection.execute(insert(study).values(values).on_conflict_do_nothing()).rowcount == 1:
        append(connection, PROJECT_LOG, [Change(actor, LOG_BEGUN, STUDY_SUBJECT, after=row_sha256(study, row))])
