"""How a study gets on, for a starter that waits: whether it is over, whether anybody works, what has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import select

from pipeline.study.leases import RESULTS
from pipeline.study.ledger import Ledger, found
from pipeline.study.tables import audit, slide, study, task

_AT_ONCE = 1000


class Watching:
    """A study, watched from now on. Raises BadManifestError: no such study."""

    def __init__(self, ledger: Ledger, study_id: str) -> None:
        self._database = ledger.database
        self._study_id = study_id
        with self._database.read() as connection:
            found(connection, study_id)
            head = select(study.c.audit_seq).where(study.c.study_id == study_id)
            self._seen: int = connection.scalars(head).one()

    def is_over(self) -> bool:
        """Whether every slide has ended, or the study is paused."""
        pending = select(slide.c.slide_id).where(slide.c.study_id == self._study_id, slide.c.state == "pending")
        with self._database.read() as connection:
            if found(connection, self._study_id).state == "paused":
                return True
            return connection.execute(pending.limit(1)).first() is None

    def is_worked_on(self) -> bool:
        """Whether any worker has a task in its hands."""
        held = select(task.c.slide_id).where(task.c.study_id == self._study_id, task.c.state == "leased")
        with self._database.read() as connection:
            return connection.execute(held.limit(1)).first() is not None

    def news(self) -> Sequence[str]:
        """A line for each task that ended since the last look."""
        own = (audit.c.study_id == self._study_id, audit.c.seq > self._seen)
        ended = select(audit.c.seq, audit.c.subject, audit.c.action, audit.c.details)
        ended = ended.where(*own, audit.c.action.in_(RESULTS)).order_by(audit.c.seq).limit(_AT_ONCE)
        with self._database.read() as connection:
            rows = connection.execute(ended).all()
        self._seen = rows[-1].seq if rows else self._seen
        return [_line(row.subject, row.action, row.details) for row in rows if row.subject]  # else it was erased


def _line(subject: str, action: str, details: str) -> str:
    slide_id, _, stage = subject.removeprefix("task ").partition("/")
    code = json.loads(details)["code"]
    return f"{slide_id}: {stage}: {action.removeprefix('task ')}{f' ({code})' if code else ''}"
