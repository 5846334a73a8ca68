"""The project's own log: who signed in, and who viewed, annotated, reviewed and started what outside studies.

It is one more log in the table of study logs, under a name that no study can have, so the same rules apply: entries
are only added, every change is one transaction with its entry, and it is verified, anchored and signed in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select

from pipeline.ledger.chain import Change as Change
from pipeline.ledger.chain import utc_now as utc_now
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.project_entries import append_to_project as append_to_project
from pipeline.ledger.rows import PROJECT_LOG
from pipeline.ledger.tables import audit


@dataclass(frozen=True)
class LogFilter:
    """Filter for entries of the project's log; None: all.

    Attributes:
        subject: the exact subject, as in `rows.py`: "slide S-1".
        actor: a prefix of the actor: "ada" finds "ada (web app)".
        before: only entries before this number.
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
        GemslideError: the ledger is unavailable, locked or read-only; then nothing was logged.
    """
    with ledger.database.write() as connection:
        append_to_project(connection, changes)
