"""Progress of a study's readings: by reader, by slide, and readers who are waiting for the washout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from pipeline.ledger.ledger import Ledger
from pipeline.ledger.tables import answer, reading
from pipeline.study.reading.arms import may_show_predictions
from pipeline.study.reading.blinding import unaided_elsewhere
from pipeline.study.reading.due import Due, due_of, undecidable_slides
from pipeline.study.reading.order import lay_out as lay_out
from pipeline.study.reading.questions import Answer, ReadingConfig
from pipeline.study.reading.readings import ADJUDICATION, Readings
from training.foundation.settings import parse_section


@dataclass(frozen=True)
class ReaderProgress:
    """Progress of one reader.

    Attributes:
        due: the reading that is started or next; None if all are signed.
        waits_until: time from which `due` may be started; None if it may be started now, or waits for a signature.
        is_due: whether `due` may be read now.
        num_now, num_later: unsigned readings that can be read now, one after another, and those that cannot.
    """

    reader: str
    signed: int
    total: int
    due: Row[Any] | None
    waits_until: datetime | None
    is_due: bool = True
    num_now: int = 0
    num_later: int = 0

    @property
    def is_adjudicator(self) -> bool:
        return self.due is not None and self.due.arm == ADJUDICATION


def readings_of(ledger: Ledger, study_id: str) -> Readings | None:
    """A study's readings; None if its protocol has none.

    Raises:
        BadManifestError: no such study. BadRecipeError: a protocol of another version.
        DamagedStoreError: the frozen protocol was changed behind the log's back.
    """
    raw = ledger.study(study_id).frozen().get("reading")
    if raw is None:
        return None
    config = parse_section(ReadingConfig, raw, where=f"[reading] of study {study_id} in the ledger")
    return Readings(ledger, study_id, config)


def progress_of_readers(readings: Readings, *, now: datetime | None = None) -> list[ReaderProgress]:
    """Progress of each reader, adjudicators last; empty if the readings were not laid out."""
    chosen = select(reading).where(reading.c.study_id == readings.study_id, reading.c.state != "erased")
    order = (reading.c.reader, reading.c.session, reading.c.position)
    with readings.ledger.database.read() as connection:
        rows = connection.execute(chosen.order_by(*order)).all()
        undecidable = undecidable_slides(connection, readings.study_id, readings.config)
    of_reader: dict[str, list[Row[Any]]] = {}
    for row in rows:
        of_reader.setdefault(row.reader, []).append(row)
    names = [name for name in (*readings.config.readers, *readings.config.adjudicators) if name in of_reader]
    moment, days = now or datetime.now(UTC), readings.config.washout_days
    return [_progress(name, of_reader[name], due_of(of_reader[name], days, moment, undecidable)) for name in names]


def _progress(reader: str, rows: Sequence[Row[Any]], due: Due) -> ReaderProgress:
    signed = sum(row.state == "signed" for row in rows)
    waits_until = None if due.now else due.next_at
    return ReaderProgress(
        reader, signed, len(rows), due.first, waits_until, bool(due.now), len(due.now), len(due.later)
    )


def dues_of_reader(ledger: Ledger, reader: str, *, now: datetime | None = None) -> dict[str, Due]:
    """A person's unsigned readings by study, sorted by whether they can be read now.

    Raises: as `readings_of`.
    """
    dues = {}
    for study_id in studies_of_reader(ledger, reader):
        readings = readings_of(ledger, study_id)
        if readings is None:
            continue
        own = select(reading).where(reading.c.study_id == study_id, reading.c.reader == reader)
        with ledger.database.read() as connection:
            rows = connection.execute(own.order_by(reading.c.session, reading.c.position)).all()
            undecidable = undecidable_slides(connection, study_id, readings.config)
            due = due_of(rows, readings.config.washout_days, now or datetime.now(UTC), undecidable)
            first = due.first
            is_blocked = first is not None and first.state == "open" and may_show_predictions(first)
            if first is not None and is_blocked and unaided_elsewhere(connection, first):
                due = due.without_now()
        dues[study_id] = due
    return dues


def readings_of_slide(ledger: Ledger, study_id: str, slide_id: str) -> list[tuple[Row[Any], Mapping[str, Answer]]]:
    """All readings of a slide in a study, each with the answers that count."""
    chosen = select(reading).where(reading.c.study_id == study_id, reading.c.slide_id == slide_id)
    with ledger.database.read() as connection:
        rows = connection.execute(chosen.order_by(reading.c.reader, reading.c.session)).all()
        return [(row, _answers(connection, row)) for row in rows]


def readings_of_reader(ledger: Ledger, reader: str, slide_ids: Sequence[str] | None = None) -> Sequence[Row[Any]]:
    """A reader's readings of some slides, or of all, in all studies, in reading order."""
    chosen = select(reading).where(reading.c.reader == reader)
    if slide_ids is not None:
        chosen = chosen.where(reading.c.slide_id.in_(slide_ids))
    order = (reading.c.study_id, reading.c.session, reading.c.position)
    with ledger.database.read() as connection:
        return connection.execute(chosen.order_by(*order)).all()


def readers_of_slides(ledger: Ledger, slide_ids: Sequence[str]) -> list[tuple[str, str, str]]:
    """Readers of slides in any study, with the state of the reading: (slide, reader, state), without erased ones."""
    columns = (reading.c.slide_id, reading.c.reader, reading.c.state)
    chosen = select(*columns).where(reading.c.slide_id.in_(slide_ids), reading.c.state != "erased").distinct()
    with ledger.database.read() as connection:
        return [(slide, reader, state) for slide, reader, state in connection.execute(chosen.order_by(*columns))]


def studies_of_reader(ledger: Ledger, reader: str) -> list[str]:
    """Studies in which a reader has readings that are not signed."""
    chosen = select(reading.c.study_id).where(reading.c.reader == reader, reading.c.state.in_(("open", "started")))
    with ledger.database.read() as connection:
        return list(connection.scalars(chosen.distinct().order_by(reading.c.study_id)))


def _answers(connection: Connection, row: Row[Any]) -> dict[str, Answer]:
    key = [answer.c[name] == row._mapping[name] for name in ("study_id", "reader", "session", "position")]
    chosen = select(answer.c.question, answer.c.value).where(*key).order_by(answer.c.seq)
    return {question: json.loads(value) for question, value in connection.execute(chosen)}
