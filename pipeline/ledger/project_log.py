"""The log of the project itself: who signed in, looked at which slide, drew, judged and started what outside studies.

It is one more log in the table of the studies' logs, under a name that no study can have, so all that holds of those
holds of it: entries are only added, every change is one transaction with its entry, and it is verified, anchored and
signed in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.study.chain import FIRST, Change, append, canonical, digest
from pipeline.study.chain import utc_now as utc_now
from pipeline.study.ledger import Ledger
from pipeline.study.rows import PROJECT_LOG, STUDY, STUDY_SUBJECT, hash_row
from pipeline.study.tables import audit, study


@dataclass(frozen=True)
class LogFilter:
    """Which entries of the project's log are asked for; None: all.

    Attributes:
        subject: exactly, as in `rows.py`: "slide S-1".
        actor: the beginning of who: "ada" finds "ada (web app)".
        before: number of an entry; only those before it.
    """

    subject: str | None = None
    actor: str | None = None
    before: int | None = None


def project_history(ledger: Ledger, wanted: LogFilter, *, newest: int) -> Sequence[Row[Any]]:
    """Entries of the project's log, newest first, at most `newest`."""
    chosen = select(audit).where(audit.c.study_id == PROJECT_LOG)
    if wanted.subject is not None:
        chosen = chosen.where(audit.c.subject == wanted.subject)
    if wanted.actor is not None:
        chosen = chosen.where(audit.c.actor.startswith(wanted.actor, autoescape=True))
    if wanted.before is not None:
        chosen = chosen.where(audit.c.seq < wanted.before)
    with ledger.database.read() as connection:
        return connection.execute(chosen.order_by(audit.c.seq.desc()).limit(newest)).all()


def log_in_project(ledger: Ledger, changes: Sequence[Change]) -> None:
    """Add entries to the project's log, in a transaction of their own.

    Raises:
        GemslideError: the ledger is away, locked or may not be written; nothing was logged then.
    """
    with ledger.database.write() as connection:
        append_to_project(connection, changes)


def append_to_project(connection: Connection, changes: Sequence[Change]) -> None:
    """Add entries in the transaction that makes the changes. Other writers of the project's log wait until it ends."""
    if changes:
        _begin(connection, changes[0].actor)
        append(connection, PROJECT_LOG, changes)


def _begin(connection: Connection, actor: str) -> None:
    """Begin the log with the first change there ever is."""
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
        append(connection, PROJECT_LOG, [Change(actor, "log begun", STUDY_SUBJECT, after=hash_row(row, STUDY))])
