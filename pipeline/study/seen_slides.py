"""Which slides the project's log connects with a person: those they opened, drew on or judged."""

from __future__ import annotations

from sqlalchemy import select

from pipeline.study.ledger import Ledger
from pipeline.study.rows import PROJECT_LOG, slide_subject
from pipeline.study.tables import audit


def slides_seen(ledger: Ledger, actor: str) -> set[str]:
    """Slides that any entry of the project's log is about which names this person.

    Args:
        actor: as `Change.actor` has it.

    Raises:
        GemslideError: the ledger is away.
    """
    before = slide_subject("")
    chosen = select(audit.c.subject).where(
        audit.c.study_id == PROJECT_LOG, audit.c.actor == actor, audit.c.subject.startswith(before, autoescape=True)
    )
    with ledger.database.read() as connection:
        return {subject.removeprefix(before) for subject in connection.scalars(chosen.distinct())}
