"""Readings that can be read now, and those that are not due yet: because of the order, of a washout, or, for decisions,
because readers have not signed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, select

from pipeline.ledger.tables import answer, reading
from pipeline.study.reading.arms import ADJUDICATION
from pipeline.study.reading.questions import ReadingConfig

_KEY = ("study_id", "reader", "session", "position")


@dataclass(frozen=True)
class Due:
    """One person's unsigned readings in one study.

    Attributes:
        now: those that can be read one after another from now on; a started one comes first.
        later: those that are not due yet.
        next_at: when the first of `later` can be read; None if that depends on a signature.
    """

    now: Sequence[Row[Any]] = ()
    later: Sequence[Row[Any]] = ()
    next_at: datetime | None = None

    @property
    def first(self) -> Row[Any] | None:
        """The reading that is started, else the next that may be started, else the next that will be."""
        return next(iter((*self.now, *self.later)), None)

    def without_now(self) -> Due:
        """The same if nothing can be read now after all."""
        return Due((), (*self.now, *self.later))


def due_of(rows: Sequence[Row[Any]], washout_days: float, now: datetime, undecidable: Collection[str]) -> Due:
    """Sort one person's readings of one study by whether they can be read now.

    A reader's readings keep their order: whatever follows one that is not due is not due either. Decisions have no
    order.

    Args:
        rows: all of the person's readings, in their order.
        undecidable: slides that cannot be decided yet (`undecidable_slides`).
    """
    ready = [row for row in rows if row.state == "started"]
    later: list[Row[Any]] = []
    rested_at = _rested_at(rows, washout_days)
    unsigned: set[str] = set()
    until: datetime | None = None
    for row in (row for row in rows if row.state in ("open", "started")):
        rests_until = rested_at.get(row.slide_id, now)
        if row.arm == ADJUDICATION:
            is_due = row.slide_id not in undecidable
        else:
            is_due = not later and rests_until <= now and not (row.slide_id in unsigned and washout_days > 0)
        if row.state == "open":
            until = rests_until if not is_due and not later and rests_until > now else until
            (ready if is_due else later).append(row)
        unsigned.add(row.slide_id)
    return Due(ready, later, until)


def _rested_at(rows: Sequence[Row[Any]], washout_days: float) -> dict[str, datetime]:
    """Time from which each slide that was read may be read again."""
    latest: dict[str, str] = {}
    for row in rows:
        if row.signed_utc:
            latest[row.slide_id] = max(row.signed_utc, latest.get(row.slide_id, ""))
    return {slide_id: _time(utc) + timedelta(days=washout_days) for slide_id, utc in latest.items()}


def undecidable_slides(connection: Connection, study_id: str, config: ReadingConfig) -> frozenset[str]:
    """Slides given to adjudicators that cannot be decided yet: in an arm whose signed readings differ, a reader has not
    signed."""
    of_study = reading.c.study_id == study_id
    given = select(reading.c.slide_id).where(of_study, reading.c.arm == ADJUDICATION, reading.c.state == "open")
    chosen = select(reading).where(of_study, reading.c.arm != ADJUDICATION, reading.c.slide_id.in_(given))
    rows = connection.execute(chosen).all()
    waiting = {(row.slide_id, row.arm) for row in rows if row.state in ("open", "started")}
    signed = [row for row in rows if row.state == "signed" and (row.slide_id, row.arm) in waiting]
    return frozenset(slide_id for slide_id, _ in _differing(connection, signed, config))


def _differing(connection: Connection, rows: Sequence[Row[Any]], config: ReadingConfig) -> set[tuple[str, str]]:
    """Slide and arm of those of the readings whose answers differ in a question other than free text."""
    compared = [question.name for question in config.questions if question.kind != "text"]
    values: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        key = [answer.c[name] == row._mapping[name] for name in _KEY]
        chosen = select(answer.c.question, answer.c.value).where(*key).order_by(answer.c.seq)
        counted = {question: json.dumps(json.loads(value)) for question, value in connection.execute(chosen)}
        for question in compared:
            if question in counted:
                values.setdefault((row.slide_id, row.arm, question), set()).add(counted[question])
    return {(slide_id, arm) for (slide_id, arm, _), given in values.items() if len(given) > 1}


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
