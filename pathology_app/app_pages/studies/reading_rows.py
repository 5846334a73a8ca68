"""Content of the pages of readings. Pure: nothing here draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pathology_app.app_pages.studies.rows import duration_text
from pathology_app.html.tables import Column, Link, table
from pathology_app.html.text import time_text
from pathology_app.links.studies import StudyLink
from pipeline.review import Coverage
from pipeline.study import ADJUDICATION, MAX_TEXT, Answer, Question, ReaderProgress, ReadingConfig

ARMS = {
    "unassisted": "unassisted: no model output is shown",
    "assisted": "assisted: predictions are shown",
    "glass": "glass: read it at the microscope",
    "digital": "digital: no model output is shown",
    "adjudication": "adjudication: decide where readers disagree",
}
MAGNIFICATIONS = (2.5, 10.0, 20.0)
"""Magnifications at which the log records the share of tissue seen, beside the protocol's."""

Reading = Any
"""A row of the ledger's table `reading`."""


def answer_text(value: Answer | None) -> str:
    """An answer as readable text; "–" where there is none."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def place_text(due: Reading, total: int, signed: int, in_session: int) -> str:
    """Position of a reading: "session 1, slide 3 of 20 · 12 of 40 signed"."""
    return f"session {due.session}, slide {due.position} of {in_session} · {signed} of {total} signed"


def question_data(question: Question) -> dict[str, Any]:
    """A question as the browser draws it (frontend/src/reading/form_model.ts, Question)."""
    return {
        "name": question.name,
        "ask": question.ask,
        "kind": question.kind,
        "choices": list(question.choices),
        "low": question.low,
        "high": question.high,
        "required": question.required,
        "max_length": MAX_TEXT,
    }


def progress_html(readers: Iterable[ReaderProgress]) -> str:
    """Progress of each reader, with the end of any washout."""
    columns = (
        Column("Reader"),
        Column("Signed", "number"),
        Column("Of", "number"),
        Column("Now"),
        Column("Waits until (UTC)", "fixed"),
    )
    rows = [(row.reader, str(row.signed), str(row.total), _status_text(row), until_text(row)) for row in readers]
    return table(columns, rows, label="Readers")


def until_text(progress: ReaderProgress) -> str:
    """End of the washout; "" where there is none."""
    return f"{progress.waits_until:%Y-%m-%d %H:%M}" if progress.waits_until else ""


def _status_text(progress: ReaderProgress) -> str:
    if progress.due is None:
        return "all signed"
    at = f"session {progress.due.session}, {progress.due.arm}"
    if progress.is_due:
        return f"{at}, {progress.due.state}"
    return f"washout before {at}" if progress.due.arm != ADJUDICATION else "waits for the readers to sign"


def signed_html(study_id: str, rows: Sequence[Reading], *, is_hidden: bool) -> str:
    """Signed readings, each with a link to its slide and the reader's own answers.

    Args:
        is_hidden: predictions and others' answers are still hidden.
    """
    columns = (
        Column("Slide"),
        Column("Session", "number"),
        Column("Arm"),
        Column("Signed (UTC)", "fixed"),
        Column("Time", "number"),
        Column("Note"),
    )
    shown = [
        (
            Link(row.slide_id, StudyLink(study_id, slide=row.slide_id).query()),
            str(row.session),
            row.arm,
            time_text(row.signed_utc),
            duration_text(row.seconds),
            "predictions stay hidden until all readings are signed" if is_hidden else "",
        )
        for row in rows
    ]
    return table(columns, shown, label="Signed readings")


def answers_html(
    config: ReadingConfig, readings: Iterable[tuple[Reading, Mapping[str, Answer]]], *, label: str = "Answers"
) -> str:
    """Answers of several readings side by side: a row for each reading, a column for each question."""
    columns = (
        Column("Reader"),
        Column("Arm"),
        Column("State"),
        *(Column(question.name, "long" if question.kind == "text" else "text") for question in config.questions),
        Column("Time", "number"),
    )
    rows = [
        (
            row.reader,
            row.arm,
            row.state,
            *(answer_text(given.get(question.name)) for question in config.questions),
            duration_text(row.seconds),
        )
        for row, given in readings
    ]
    return table(columns, rows, label=label)


def others_data(
    config: ReadingConfig, readings: Sequence[tuple[Reading, Mapping[str, Answer]]]
) -> list[dict[str, Any]]:
    """Answers of signed readings, to decide between (frontend/src/reading/form_model.ts, Other)."""
    several = len({(row.arm, row.session) for row, _ in readings}) > 1
    names = {question.name for question in config.questions}
    return [
        {
            "name": f"{row.reader} ({row.arm} {row.session})" if several else row.reader,
            "answers": {name: value for name, value in given.items() if name in names and value != ""},
        }
        for row, given in readings
    ]


def seen_details(coverage: Coverage | None, tissue_yx: Any | None) -> dict[str, Any]:
    """Details of the coverage viewed, for the log of a signed reading."""
    if coverage is None:
        return {}
    details: dict[str, Any] = {"seconds_open": round(coverage.seconds, 1)}
    if tissue_yx is not None:
        zooms = sorted({*MAGNIFICATIONS, coverage.rule.magnification})
        shares = {f"{zoom:g}x": coverage.share_seen(tissue_yx, zoom) for zoom in zooms}
        details["seen_rule"] = coverage.rule.model_dump()
        details["tissue_seen"] = {name: round(share, 4) for name, share in shares.items() if share is not None}
    return details


def seconds_of(coverage: Coverage | None, started_utc: str | None, now: datetime | None = None) -> float:
    """Duration of a reading: the time it was open in a visible tab, at most the time since its start."""
    began = datetime.strptime(started_utc or "", "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    most = max(0.0, ((now or datetime.now(UTC)) - began).total_seconds())
    return round(min(coverage.seconds if coverage else 0.0, most), 1)
