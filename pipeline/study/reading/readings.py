"""Readings of slides by people: laid out once, started, answered, signed; answers are locked then, and changes kept.

The web app calls these functions; every step is an entry of the study's log, with a hash in place of what was answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from pipeline.errors import BadManifestError
from pipeline.study.chain import Change, append, canonical, digest, utc_now
from pipeline.study.ledger import Ledger, found
from pipeline.study.questions import Answer, ReadingConfig
from pipeline.study.reading_order import Assignment
from pipeline.study.rows import ANSWER_GIVEN, READING, hash_row, reading_subject
from pipeline.study.tables import answer, reading

ADJUDICATION = "adjudication"
_AT_ONCE = 5_000


@dataclass(frozen=True)
class Readings:
    """One study's readings.

    Args:
        config: of the frozen protocol.
    """

    ledger: Ledger
    study_id: str
    config: ReadingConfig

    def begin(self, assignments: Sequence[Assignment], *, actor: str, why: str = "") -> None:
        """Write down who reads what; once.

        Raises:
            BadManifestError: it was laid out before.
        """
        with self.ledger.database.write() as connection:
            found(connection, self.study_id)
            chosen = select(func.count()).select_from(reading).where(reading.c.study_id == self.study_id)
            if connection.scalar(chosen):
                raise BadManifestError(f"study {self.study_id}: its readings were laid out before, and stay so.")
            self._add(connection, assignments, actor, why)

    def next_of(self, reader: str, *, now: datetime | None = None) -> Row[Any] | None:
        """The reading that a reader has started, else the next that may be started; None where all are signed.

        Raises:
            BadManifestError: the washout is not over: when it will be stands in the message. An unknown reader.
        """
        with self.ledger.database.read() as connection:
            rows = self._of_reader(connection, reader)
        started = [row for row in rows if row.state == "started"]
        waiting = [row for row in rows if row.state == "open"]
        if started or not waiting:
            return started[0] if started else None
        self._check_washout(rows, waiting[0], now or datetime.now(UTC))
        return waiting[0]

    def start(
        self, reader: str, session: int, position: int, *, now: datetime | None = None, actor: str | None = None
    ) -> None:
        """Open a reading; only the reader's next one can be.

        Args:
            actor: whom the log names, in place of the reader.

        Raises:
            BadManifestError: another one comes first, or the washout is not over.
        """
        due = self.next_of(reader, now=now)
        if due is None or (due.session, due.position) != (session, position) or due.state != "open":
            said = f"session {due.session}, slide {due.position} ({due.state})" if due else "none: all are signed"
            raise BadManifestError(f"reader {reader}: the reading that is due is {said}.")
        values = {"state": "started", "started_utc": utc_now()}
        with self.ledger.database.write() as connection:
            row = self._row(connection, reader, session, position)
            if row.state != "open":  # in another window, since
                raise BadManifestError(f"reader {reader}, session {session}, slide {position}: is {row.state} already.")
            self._change(connection, row, values, "reading started", actor)

    def give(
        self, reader: str, session: int, position: int, question: str, value: Answer, *, actor: str | None = None
    ) -> None:
        """Answer a question of a started reading; an earlier answer is kept, and does not count any more.

        Args:
            actor: whom the log names, in place of the reader.

        Raises:
            BadManifestError: no answer to that question, or the reading is not open for answers.
        """
        self.config.question(question).check(value)
        with self.ledger.database.write() as connection:
            row = self._row(connection, reader, session, position)
            self._check_started(row)
            seq = 1 + (connection.scalar(select(func.max(answer.c.seq)).where(*_of_answers(row))) or 0)
            given = {"seq": seq, "question": question, "value": canonical(value), "utc": utc_now()}
            key = {name: row._mapping[name] for name in ("study_id", "reader", "session", "position")}
            connection.execute(insert(answer).values(key | given))
            details = {"answer": [[seq, question, digest(value)]]}
            append(connection, self.study_id, [Change(actor or reader, ANSWER_GIVEN, _subject(row), details=details)])

    def sign(
        self,
        reader: str,
        session: int,
        position: int,
        *,
        seconds: float,
        actor: str | None = None,
        seen: Mapping[str, Any] | None = None,
    ) -> None:
        """Lock a reading's answers.

        Args:
            seconds: how long the slide was looked at.
            actor: whom the log names, in place of the reader.
            seen: what was looked at, for the log.

        Raises:
            BadManifestError: a required question is not answered, or the reading is not started.
        """
        with self.ledger.database.write() as connection:
            row = self._row(connection, reader, session, position)
            given = _answers(connection, row)
            self._check_started(row)
            missing = [each.name for each in self.config.questions if each.required and each.name not in given]
            if missing:
                raise BadManifestError(f"reader {reader}, slide {row.slide_id}: not answered: {', '.join(missing)}.")
            values = {"state": "signed", "signed_utc": utc_now(), "seconds": seconds}
            details = {"answers_sha256": digest(given)} | ({"seen": dict(seen)} if seen else {})
            self._change(connection, row, values, "reading signed", actor, **details)

    def row(self, reader: str, session: int, position: int) -> Row[Any]:
        """One reading. Raises BadManifestError: there is no such one."""
        with self.ledger.database.read() as connection:
            return self._row(connection, reader, session, position)

    def count(self, reader: str, session: int) -> int:
        """How many slides a reader has in a session."""
        chosen = select(func.count()).where(
            reading.c.study_id == self.study_id, reading.c.reader == reader, reading.c.session == session
        )
        with self.ledger.database.read() as connection:
            return connection.scalar(chosen) or 0

    def signed_of(self, reader: str) -> Sequence[Row[Any]]:
        """A reader's signed readings, the last one first."""
        chosen = select(reading).where(
            reading.c.study_id == self.study_id, reading.c.reader == reader, reading.c.state == "signed"
        )
        with self.ledger.database.read() as connection:
            return connection.execute(chosen.order_by(reading.c.signed_utc.desc())).all()

    def of_arm(self, arm: str) -> Sequence[Row[Any]]:
        """All readings under a condition, in the order in which they were laid out."""
        chosen = select(reading).where(reading.c.study_id == self.study_id, reading.c.arm == arm)
        with self.ledger.database.read() as connection:
            return connection.execute(chosen.order_by(reading.c.session, reading.c.position, reading.c.reader)).all()

    def answers(self, reader: str, session: int, position: int) -> dict[str, Answer]:
        """The answers that count, by question."""
        with self.ledger.database.read() as connection:
            return _answers(connection, self._row(connection, reader, session, position))

    def signed(self, question: str, arm: str) -> list[tuple[str, str, int, Answer]]:
        """Slide, reader, session and answer of all signed readings under a condition."""
        self.config.question(question)
        chosen = select(reading).where(
            reading.c.study_id == self.study_id, reading.c.arm == arm, reading.c.state == "signed"
        )
        with self.ledger.database.read() as connection:
            rows = connection.execute(chosen.order_by(reading.c.slide_id, reading.c.reader, reading.c.session)).all()
            given = [(row, _answers(connection, row)) for row in rows]
        return [(row.slide_id, row.reader, row.session, a[question]) for row, a in given if question in a]

    def adjudicate(self, question: str, arm: str, *, actor: str, why: str = "") -> list[str]:
        """Give the slides on which readers disagree to the adjudicators, in turn; each slide once. Returns them.

        Raises:
            BadManifestError: the protocol names no adjudicator.
        """
        if not self.config.adjudicators:
            raise BadManifestError(f"study {self.study_id}: its protocol names no adjudicators.")
        said: dict[str, set[str]] = {}
        for slide_id, _, _, value in self.signed(question, arm):
            said.setdefault(slide_id, set()).add(canonical(value))
        with self.ledger.database.write() as connection:
            found(connection, self.study_id)
            of_arm = (reading.c.study_id == self.study_id, reading.c.arm == ADJUDICATION)
            before = set(connection.scalars(select(reading.c.slide_id).where(*of_arm)))
            slides = sorted(slide for slide, values in said.items() if len(values) > 1 and slide not in before)
            readers = self.config.adjudicators
            new = [
                Assignment(readers[(len(before) + at) % len(readers)], 1, len(before) + at + 1, slide, ADJUDICATION)
                for at, slide in enumerate(slides)
            ]
            self._add(connection, new, actor, why)
        return slides

    def _add(self, connection: Connection, assignments: Sequence[Assignment], actor: str, why: str) -> None:
        empty = {"state": "open", "started_utc": None, "signed_utc": None, "seconds": None}
        rows = [{"study_id": self.study_id, **vars(each), **empty} for each in assignments]
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            connection.execute(insert(reading), part)
            changes = [
                Change(actor, "reading laid out", _subject(row), why, after=hash_row(row, READING)) for row in part
            ]
            append(connection, self.study_id, changes)

    def _change(
        self,
        connection: Connection,
        row: Row[Any],
        values: dict[str, Any],
        action: str,
        actor: str | None,
        **details: Any,
    ) -> None:
        connection.execute(update(reading).where(*_of_reading(row)).values(values))
        before = dict(row._mapping)
        hashes = hash_row(before, READING), hash_row(before | values, READING)
        change = Change(actor or row.reader, action, _subject(row), "", *hashes, details)
        append(connection, self.study_id, [change])

    def _check_started(self, row: Row[Any]) -> None:
        if row.state != "started":
            why = "is signed: its answers are locked" if row.state == "signed" else "is not started"
            raise BadManifestError(f"reader {row.reader}, session {row.session}, slide {row.position}: {why}.")

    def _check_washout(self, rows: Sequence[Row[Any]], due: Row[Any], now: datetime) -> None:
        until = washout_end(rows, due, self.config.washout_days)
        if until and now < until:
            raise BadManifestError(
                f"reader {due.reader}: session {due.session} begins after the washout of {self.config.washout_days:g} "
                f"days, on {until:%Y-%m-%d %H:%M} UTC."
            )

    def _of_reader(self, connection: Connection, reader: str) -> Sequence[Row[Any]]:
        chosen = select(reading).where(reading.c.study_id == self.study_id, reading.c.reader == reader)
        rows = connection.execute(chosen.order_by(reading.c.session, reading.c.position)).all()
        if not rows:
            raise BadManifestError(f"reader {reader:.100}: has no readings in study {self.study_id}.")
        return rows

    def _row(self, connection: Connection, reader: str, session: int, position: int) -> Row[Any]:
        key = {"study_id": self.study_id, "reader": reader, "session": session, "position": position}
        row = connection.execute(
            select(reading).where(*(reading.c[name] == value for name, value in key.items())).with_for_update()
        ).one_or_none()
        if row is None:
            raise BadManifestError(f"reader {reader:.100}: has no slide {position} in session {session}.")
        return row


def washout_end(rows: Sequence[Row[Any]], due: Row[Any], washout_days: float) -> datetime | None:
    """When a reading may be started, by the reader's other ones of its slide; None where there was none."""
    earlier = [_time(row.signed_utc) for row in rows if row.slide_id == due.slide_id and row.signed_utc]
    return max(earlier) + timedelta(days=washout_days) if earlier else None


def may_show_predictions(row: Row[Any]) -> bool:
    """Whether what a model said may be shown in this reading."""
    return bool(row.arm == "assisted")


def _answers(connection: Connection, row: Row[Any]) -> dict[str, Answer]:
    chosen = select(answer.c.question, answer.c.value).where(*_of_answers(row)).order_by(answer.c.seq)
    return {question: json.loads(value) for question, value in connection.execute(chosen)}


def _of_reading(row: Row[Any]) -> list[Any]:
    return [reading.c[name] == row._mapping[name] for name in ("study_id", "reader", "session", "position")]


def _of_answers(row: Row[Any]) -> list[Any]:
    return [answer.c[name] == row._mapping[name] for name in ("study_id", "reader", "session", "position")]


def _subject(row: Row[Any] | Mapping[str, Any]) -> str:
    values = row._mapping if isinstance(row, Row) else row
    return reading_subject(values["reader"], values["session"], values["position"])


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
