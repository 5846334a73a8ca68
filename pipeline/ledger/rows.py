"""Columns of each row that the log's hashes cover: all but those that `NOT_COVERED` lists with a reason; and a row
changed together with the entry that says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from sqlalchemy import Column, Connection, Float, Integer, LargeBinary, Row, Table, update

from pipeline.errors import DamagedStoreError
from pipeline.ledger.chain import Change, digest
from pipeline.ledger.tables import slide, task

NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {
        "task.beat": "counts up four times per lease while a worker has the task; it only decides who works next",
        "task.beat_utc": "when a worker was last heard from, for display only; nothing is computed from it",
        "session": "who is signed in at this moment; sign-ins and sign-outs are in the project's log",
        "attempt": "how often a sign-in was tried in the last 15 minutes; refusals are in the project's log",
    }
)
"""Columns, and whole tables, that change without an entry (docs/explanation/part11.md). No report reads them."""
_HEAD = ("study.audit_seq", "study.audit_hash")
"""The log's own end: `verify` compares it with the last entry."""

STUDY_SUBJECT = "study"
PROJECT_LOG = "@project"
"""In place of a study's name: the project's own log (`project_log.py`). No study can have this name."""
ERASED = "erased"
"""The code of a slide that was erased on request; its name is `erased-` and its position in the cohort."""
STUDY_BEGUN = "study begun"
"""The action of a study's first entry, and of the entry in the project's log that names the study."""
SLIDE_ENTERED, TASKS_ADDED = "slide entered", "tasks added"
"""Actions of entries whose details list the slide's new tasks, from `new_tasks`: this is how they enter the log."""
ENTRIES_ERASED = "entries erased"
"""The action of an entry whose details list the numbers of the erased entries, as [first, last]."""
LOG_BEGUN = "log begun"
"""The action of the first entry of a project's log."""
AMENDED, STUDY_EXPORTED, ANCHOR_EXPORTED = "protocol amended", "study exported", "anchor exported"
REPORT_MADE, SIGNED = "report made", "report signed"
"""The first is the action of an entry whose details list a report's folder in the project, the SHA-256 of each of its
files, and that of each tile set whose labels are a reference; the second that of one with a signature, as beside the
report, and the report's location."""
SLIDE_ERASED, READING_ERASED = "slide erased", "reading erased"
NEVER_ERASED = frozenset(
    {
        STUDY_BEGUN, LOG_BEGUN, AMENDED, REPORT_MADE, SIGNED, ANCHOR_EXPORTED, STUDY_EXPORTED, SLIDE_ERASED,
        READING_ERASED, ENTRIES_ERASED,
    }
)  # fmt: skip
"""Actions of entries about a study as a whole, or about an erasure, which empties only entries about a slide, its tasks
and its readings: an empty one of these is a finding, whatever claims to have erased it."""
ANSWER_GIVEN = "answer given"
"""The action of an entry whose details list a reader's answers, as [number, question, hash of the row]."""


def study_subject(study_id: str) -> str:
    """A study's subject in the project's log; in its own log it is `STUDY_SUBJECT`."""
    return f"study {study_id}"


def slide_subject(slide_id: str) -> str:
    return f"slide {slide_id}"


def task_subject(slide_id: str, stage: str) -> str:
    return f"task {slide_id}/{stage}"


def reading_subject(reader: str, session: int, position: int) -> str:
    return f"reading {reader}/{session}/{position}"


def answer_subject(of_reading: str, seq: int) -> str:
    """Subject of an answer; `of_reading` is the subject of its reading."""
    return f"{of_reading}, answer {seq}"


def new_task(stage: str, state: str) -> dict[str, Any]:
    """Values of a task that nobody has worked on yet."""
    empty = [column.name for column in task.columns if column.nullable]
    return {**dict.fromkeys(empty), "stage": stage, "state": state, "attempts": 0, "token": 0, "beat": 0}


def new_tasks(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Stage, state and hash of tasks, by which they enter the log."""
    return [[row["stage"], row["state"], row_sha256(task, row)] for row in rows]


def row_sha256(table: Table, row: Mapping[str, Any]) -> str:
    """SHA-256 of a row's covered columns, including its key.

    Args:
        row: all of these columns, as read or about to be written.

    Raises:
        DamagedStoreError: a value is not of its column's kind, which SQLite does not enforce: it was changed.
    """
    return digest([table.name, *(converted(row[name]) for name, converted in _columns(table))])


def change_task(
    connection: Connection, row: Row[Any], values: dict[str, Any], *, actor: str, action: str, why: str = ""
) -> Change:
    """Set columns of a task in this transaction, and return the change to log.

    Args:
        row: all of the task's columns, as they are now.
    """
    is_task = (task.c.study_id == row.study_id, task.c.slide_id == row.slide_id, task.c.position == row.position)
    connection.execute(update(task).where(*is_task).values(values))
    before = dict(row._mapping)
    hashes = row_sha256(task, before), row_sha256(task, before | values)
    return Change(actor, action, task_subject(row.slide_id, row.stage), why, *hashes)


def change_slide(
    connection: Connection, row: Row[Any], values: dict[str, Any], *, actor: str, action: str, why: str = ""
) -> Change:
    """As `change_task`, of a slide."""
    is_slide = (slide.c.study_id == row.study_id, slide.c.slide_id == row.slide_id)
    connection.execute(update(slide).where(*is_slide).values(values))
    before = dict(row._mapping)
    hashes = row_sha256(slide, before), row_sha256(slide, before | values)
    return Change(actor, action, slide_subject(row.slide_id), why, *hashes)


def covered_columns(table: Table) -> tuple[str, ...]:
    """Names of the columns that `row_sha256` covers."""
    return tuple(name for name, _ in _columns(table))


@cache
def _columns(table: Table) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    left_out = {*NOT_COVERED, *_HEAD}
    columns = [column for column in table.columns if str(column) not in left_out]
    return tuple((column.name, as_read(column)) for column in columns)


@cache
def as_read(column: Column[Any]) -> Callable[[Any], Any]:
    """Converter from a value as written to what the database returns, as JSON: 1 comes back as 1.0 from a float.

    It raises DamagedStoreError for a value that is not of the column's kind.
    """
    kinds: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
        (Float, "a finite number", _finite),
        (Integer, "a whole number", _whole),
        (LargeBinary, "bytes", _hexadecimal),
        (object, "text", _text),
    )
    kind, convert = next((words, convert) for base, words, convert in kinds if isinstance(column.type, base))

    def converted(value: Any) -> Any:
        try:
            return None if value is None else convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise DamagedStoreError(
                f"{column} holds a value of type {type(value).__name__} in place of {kind}: it was changed or damaged; "
                "restore the ledger from a backup"
            ) from error

    return converted


def _finite(value: Any) -> float:
    if isinstance(value, (str, bytes)) or not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _whole(value: Any) -> int:
    if (number := int(value)) != value:
        raise ValueError
    return number


def _hexadecimal(value: Any) -> str:
    return memoryview(value).hex()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
