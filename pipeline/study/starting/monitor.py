"""Monitoring of a study for a starter that waits: whether it is over, whether anybody is working, which tasks ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Row, Select, select

from pipeline.ledger.ledger import Ledger, found
from pipeline.ledger.tables import audit, slide, study, task
from pipeline.study.work.leases import RESULTS
from pipeline.study.work.retry import wait_for_ledger

_AT_ONCE = 1000


class StudyMonitor:
    """A study, monitored from now on, even while its database is unavailable for some time.

    Args:
        said: called with the reason for a wait, if there is one.

    Raises:
        BadManifestError: no such study.
    """

    def __init__(self, ledger: Ledger, study_id: str, said: Callable[[str], None]) -> None:
        self._database = ledger.database
        self._study_id = study_id
        self._said = said
        with self._database.read() as connection:
            found(connection, study_id)
            head = select(study.c.audit_seq).where(study.c.study_id == study_id)
            self._seen: int = connection.scalars(head).one()

    def is_over(self) -> bool:
        """Whether every slide has ended, or the study is paused."""
        pending = select(slide.c.slide_id).where(slide.c.study_id == self._study_id, slide.c.state == "pending")

        def ask() -> bool:
            with self._database.read() as connection:
                is_paused = found(connection, self._study_id).state == "paused"
                return is_paused or connection.execute(pending.limit(1)).first() is None

        return wait_for_ledger(ask, warn=self._said)

    def is_worked_on(self) -> bool:
        """Whether any worker holds a task."""
        held = select(task.c.slide_id).where(task.c.study_id == self._study_id, task.c.state == "leased")
        return bool(self._rows(held.limit(1)))

    def news(self) -> Sequence[str]:
        """A line for each task that ended since the last call."""
        own = (audit.c.study_id == self._study_id, audit.c.seq > self._seen)
        ended = select(audit.c.seq, audit.c.subject, audit.c.action, audit.c.details)
        ended = ended.where(*own, audit.c.action.in_(RESULTS)).order_by(audit.c.seq).limit(_AT_ONCE)
        rows = self._rows(ended)
        self._seen = rows[-1].seq if rows else self._seen
        return [_line(row.subject, row.action, row.details) for row in rows if row.subject]  # else it was erased

    def _rows(self, chosen: Select[Any]) -> Sequence[Row[Any]]:
        def ask() -> Sequence[Row[Any]]:
            with self._database.read() as connection:
                return connection.execute(chosen).all()

        return wait_for_ledger(ask, warn=self._said)


def _line(subject: str, action: str, details: str) -> str:
    slide_id, _, stage = subject.removeprefix("task ").partition("/")
    code = json.loads(details)["code"]
    return f"{slide_id}: {stage}: {action.removeprefix('task ')}{f' ({code})' if code else ''}"
