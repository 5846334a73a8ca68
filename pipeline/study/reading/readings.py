"""Readings of slides by people: laid out once, started, answered, signed; signing locks answers, and changes are kept.

The web app calls these functions; every step is an entry in the study's log, with a hash in place of the answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from pipeline.errors import BadManifestError
from pipeline.ledger.chain import Change, append, canonical, digest, utc_now
from pipeline.ledger.ledger import Ledger, found
from pipeline.ledger.rows import ANSWER_GIVEN, reading_subject, row_sha256
from pipeline.ledger.tables import answer, reading
from pipeline.study.reading.arms import ADJUDICATION as ADJUDICATION
from pipeline.study.reading.arms import may_show_predictions as may_show_predictions
from pipeline.study.reading.blinding import check_shown_in
from pipeline.study.reading.due import Due, due_of, undecidable_slides
from pipeline.study.reading.order import Assignment
from pipeline.study.reading.questions import Answer, ReadingConfig

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
        """Lay out who reads what, once.

        Raises:
            BadManifestError: already laid out, or somebody is named whom the protocol does not name.
        """
        for assignment in assignments:
            self.check_named(assignment.reader, assignment.arm)
        with self.ledger.database.write() as connection:
            found(connection, self.study_id)
            chosen = select(func.count()).select_from(reading).where(reading.c.study_id == self.study_id)
            if connection.scalar(chosen):
                raise BadManifestError(f"study {self.study_id}: its readings are already laid out and cannot change.")
            self._add(connection, assignments, actor, why)

    def next_of(self, reader: str, *, now: datetime | None = None) -> Row[Any] | None:
        """The reading that a reader has started, else the next that may be started; None if all are signed.

        Raises:
            BadManifestError: the washout is not over (the message says when it will be), readers have not signed the
                slides to be decided, or an unknown reader.
        """
        moment = now or datetime.now(UTC)
        with self.ledger.database.read() as connection:
            rows = self._rows_of_reader(connection, reader)
            undecidable = undecidable_slides(connection, self.study_id, self.config)
        due = due_of(rows, self.config.washout_days, moment, undecidable)
        if not due.now and due.later:
            self._say_waiting(due)
        return due.now[0] if due.now else None

    def start(
        self, reader: str, session: int, position: int, *, now: datetime | None = None, actor: str | None = None
    ) -> None:
        """Start a reading; it must be the reader's next one.

        Args:
            actor: named in the log in place of the reader.

        Raises:
            BadManifestError: another one comes first, the washout is not over, or this reading would show predictions
                of a slide that the reader has to read without help for another study.
        """
        due = self.next_of(reader, now=now)
        if due is None or (due.session, due.position) != (session, position) or due.state != "open":
            next_due = f"session {due.session}, slide {due.position} ({due.state})" if due else "none: all are signed"
            raise BadManifestError(f"reader {reader}: the reading that is due is {next_due}.")
        values = {"state": "started", "started_utc": utc_now()}
        with self.ledger.database.write() as connection:
            row = self._row(connection, reader, session, position)
            if row.state != "open":  # in another window, meanwhile
                raise BadManifestError(f"reader {reader}, session {session}, slide {position}: is already {row.state}.")
            self.check_named(reader, row.arm)
            if may_show_predictions(row):
                check_shown_in(connection, row)
            self._change(connection, row, values, "reading started", actor)

    def give(
        self, reader: str, session: int, position: int, question: str, value: Answer, *, actor: str | None = None
    ) -> None:
        """Answer a question of a started reading; an earlier answer is kept, but no longer counts.

        Args:
            actor: named in the log in place of the reader.

        Raises:
            BadManifestError: not a valid answer to that question, or the reading is not open for answers.
        """
        self.give_all(reader, session, position, {question: value}, actor=actor, again=True)

    def give_all(
        self,
        reader: str,
        session: int,
        position: int,
        answers: Mapping[str, Answer],
        *,
        actor: str | None = None,
        again: bool = False,
    ) -> None:
        """Answer several questions of a started reading at once; all of them or none.

        Args:
            again: also store an answer that is already there.

        Raises: as `give`.
        """
        with self.ledger.database.write() as connection:
            row = self._row(connection, reader, session, position)
            self._give(connection, row, answers, actor, again=again)

    def _give(
        self,
        connection: Connection,
        row: Row[Any],
        answers: Mapping[str, Answer],
        actor: str | None,
        *,
        again: bool = False,
    ) -> None:
        answers = {name: self.config.question(name).check(value) for name, value in answers.items()}
        self._check_started(row)
        before = {} if again else _answers(connection, row)
        new = {name: value for name, value in answers.items() if name not in before or before[name] != value}
        first = 1 + (connection.scalar(select(func.max(answer.c.seq)).where(*_answer_key(row))) or 0)
        key = {name: row._mapping[name] for name in ("study_id", "reader", "session", "position")}
        for seq, (question, value) in enumerate(new.items(), start=first):
            given = {"seq": seq, "question": question, "value": canonical(value), "utc": utc_now()}
            connection.execute(insert(answer).values(key | given))
            details = {"answer": [[seq, question, row_sha256(answer, key | given)]]}
            change = Change(actor or row.reader, ANSWER_GIVEN, _subject(row), details=details)
            append(connection, self.study_id, [change])

    def sign(
        self,
        reader: str,
        session: int,
        position: int,
        *,
        seconds: float,
        actor: str | None = None,
        seen: Mapping[str, Any] | None = None,
        answers: Mapping[str, Answer] | None = None,
    ) -> None:
        """Lock a reading's answers.

        Args:
            seconds: how long the slide was viewed.
            actor: named in the log in place of the reader.
            seen: what was viewed, for the log.
            answers: all answers that the reader was shown as those to be locked; any not yet stored are stored in the
                same transaction.

        Raises:
            BadManifestError: a required question is not answered, the reading is not started, or the stored answers
                are not those shown; then nothing is stored or signed.
        """
        with self.ledger.database.write() as connection:
            row = self._row(connection, reader, session, position)
            self._check_started(row)
            if answers is not None:
                self._give(connection, row, answers, actor)
            given = _answers(connection, row)
            if answers is not None:
                self._check_shown(row, given, answers)
            if missing := [question.name for question in self.config.missing(given)]:
                raise BadManifestError(f"reader {reader}, slide {row.slide_id}: not answered: {', '.join(missing)}.")
            values = {"state": "signed", "signed_utc": utc_now(), "seconds": seconds}
            details = {"answers_sha256": digest(given)} | ({"seen": dict(seen)} if seen else {})
            self._change(connection, row, values, "reading signed", actor, **details)

    def row(self, reader: str, session: int, position: int) -> Row[Any]:
        """One reading. Raises BadManifestError: no such reading."""
        with self.ledger.database.read() as connection:
            return self._row(connection, reader, session, position)

    def count(self, reader: str, session: int) -> int:
        """Number of slides that a reader has in a session."""
        chosen = select(func.count()).where(
            reading.c.study_id == self.study_id, reading.c.reader == reader, reading.c.session == session
        )
        with self.ledger.database.read() as connection:
            return connection.scalar(chosen) or 0

    def signed_of(self, reader: str) -> Sequence[Row[Any]]:
        """A reader's signed readings, latest first."""
        chosen = select(reading).where(
            reading.c.study_id == self.study_id, reading.c.reader == reader, reading.c.state == "signed"
        )
        with self.ledger.database.read() as connection:
            return connection.execute(chosen.order_by(reading.c.signed_utc.desc())).all()

    def rows_of_arm(self, arm: str) -> Sequence[Row[Any]]:
        """All readings under a condition, in the order of the layout."""
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
        """Assign slides on which readers disagree to the adjudicators in turn, each slide once. Returns the slides.

        Raises:
            BadManifestError: the protocol names no adjudicator.
        """
        if not self.config.adjudicators:
            raise BadManifestError(f"study {self.study_id}: its protocol names no adjudicators.")
        given: dict[str, set[str]] = {}
        for slide_id, _, _, value in self.signed(question, arm):
            given.setdefault(slide_id, set()).add(canonical(value))
        with self.ledger.database.write() as connection:
            found(connection, self.study_id)
            rows_of_arm = (reading.c.study_id == self.study_id, reading.c.arm == ADJUDICATION)
            before = set(connection.scalars(select(reading.c.slide_id).where(*rows_of_arm)))
            slides = sorted(slide for slide, values in given.items() if len(values) > 1 and slide not in before)
            readers = self.config.adjudicators
            new = [
                Assignment(readers[(len(before) + at) % len(readers)], 1, len(before) + at + 1, slide, ADJUDICATION)
                for at, slide in enumerate(slides)
            ]
            self._add(connection, new, actor, why)
        return slides

    def _add(self, connection: Connection, assignments: Sequence[Assignment], actor: str, why: str) -> None:
        empty = {"state": "open", "started_utc": None, "signed_utc": None, "seconds": None}
        rows = [{"study_id": self.study_id, **vars(assignment), **empty} for assignment in assignments]
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            connection.execute(insert(reading), part)
            changes = [
                Change(actor, "reading laid out", _subject(row), why, after=row_sha256(reading, row)) for row in part
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
        connection.execute(update(reading).where(*_reading_key(row)).values(values))
        before = dict(row._mapping)
        hashes = row_sha256(reading, before), row_sha256(reading, before | values)
        change = Change(actor or row.reader, action, _subject(row), "", *hashes, details)
        append(connection, self.study_id, [change])

    def check_named(self, reader: str, arm: str) -> None:
        """Check that the protocol lists a person for this arm. Raises BadManifestError: it does not."""
        named, what = self.config.readers, "readers"
        if arm == ADJUDICATION:
            named, what = self.config.adjudicators, "adjudicators"
        if reader not in named:
            raise BadManifestError(f"reader {reader:.100}: is not among the {what} of study {self.study_id}.")

    def _check_shown(self, row: Row[Any], given: Mapping[str, Answer], shown: Mapping[str, Answer]) -> None:
        """Check that the stored answers are those shown; an empty text counts as none."""
        names = [
            question.name
            for question in self.config.questions
            if given.get(question.name, "") != shown.get(question.name, "")
        ]
        if names:
            raise BadManifestError(
                f"reader {row.reader}, slide {row.slide_id}: not signed: changed elsewhere since it was shown here: "
                f"{', '.join(names)}. Check the answers again, then sign."
            )

    def _check_started(self, row: Row[Any]) -> None:
        self.check_named(row.reader, row.arm)
        if row.state != "started":
            why = "is signed: its answers are locked" if row.state == "signed" else "is not started"
            raise BadManifestError(f"reader {row.reader}, session {row.session}, slide {row.position}: {why}.")

    def _say_waiting(self, due: Due) -> None:
        """Raise the reason why the first of a person's readings is not due."""
        row = due.later[0]
        if row.arm == ADJUDICATION:
            raise BadManifestError(
                f"reader {row.reader}: slide {row.slide_id} can be decided when every reader has signed it."
            )
        until = f"{due.next_at:%Y-%m-%d %H:%M} UTC" if due.next_at else "a date that an earlier reading sets"
        raise BadManifestError(
            f"reader {row.reader}: session {row.session} begins after the washout of {self.config.washout_days:g} "
            f"days, on {until}."
        )

    def _rows_of_reader(self, connection: Connection, reader: str) -> Sequence[Row[Any]]:
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


def _answers(connection: Connection, row: Row[Any]) -> dict[str, Answer]:
    chosen = select(answer.c.question, answer.c.value).where(*_answer_key(row)).order_by(answer.c.seq)
    return {question: json.loads(value) for question, value in connection.execute(chosen)}


def _reading_key(row: Row[Any]) -> list[Any]:
    return [reading.c[name] == row._mapping[name] for name in ("study_id", "reader", "session", "position")]


def _answer_key(row: Row[Any]) -> list[Any]:
    return [answer.c[name] == row._mapping[name] for name in ("study_id", "reader", "session", "position")]


def _subject(row: Row[Any] | Mapping[str, Any]) -> str:
    values = row._mapping if isinstance(row, Row) else row
    return reading_subject(values["reader"], values["session"], values["position"])
