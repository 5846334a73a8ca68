"""Columns of each row that the log's hashes cover: all but those that `NOT_COVERED` names with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from sqlalchemy import Float, Integer, LargeBinary, Table

from pipeline.ledger.chain import digest
from pipeline.ledger.tables import task

NOT_COVERED: Mapping[str, str] = MappingProxyType(
    {
        "task.beat": "counts four times in each lease while a worker has the task; it decides only who works next",
        "task.beat_utc": "says when a worker was last heard of, for people who watch; nothing is computed from it",
        "session": "who is let in at this moment; who signed in and out is in the project's log",
        "attempt": "how often a sign-in was tried in the last 15 minutes; refusals are in the project's log",
    }
)
"""Columns, and whole tables, that change without an entry (docs/explanation/part11.md). No report reads one."""
_HEAD = ("study.audit_seq", "study.audit_hash")
"""The log's own end: `verify` compares it with the last entry."""

STUDY_SUBJECT = "study"
PROJECT_LOG = "@project"
"""In place of a study's name: the log of the project itself (`project_log.py`). No study can be called that."""
ERASED = "erased"
"""The code of a slide of which everything was erased on request; its name is `erased-` and its place in the cohort."""
STUDY_BEGUN = "study begun"
"""The action of a study's first entry, and of one in the project's log that names the study."""
SLIDE_ENTERED, TASKS_ADDED = "slide entered", "tasks added"
"""Actions of entries whose details have the slide's new tasks, as `new_tasks` gives them: they enter the log by it."""
ENTRIES_ERASED = "entries erased"
"""The action of an entry whose details have the numbers of the entries that were erased, as [first, last]."""
ANSWER_GIVEN = "answer given"
"""The action of an entry whose details have a reader's answers, as [number, question, hash of the row]."""


def study_subject(study_id: str) -> str:
    """In the project's log; in its own a study is `STUDY_SUBJECT`."""
    return f"study {study_id}"


def slide_subject(slide_id: str) -> str:
    return f"slide {slide_id}"


def task_subject(slide_id: str, stage: str) -> str:
    return f"task {slide_id}/{stage}"


def reading_subject(reader: str, session: int, position: int) -> str:
    return f"reading {reader}/{session}/{position}"


def answer_subject(of_reading: str, seq: int) -> str:
    """Args: of_reading: the subject of its reading."""
    return f"{of_reading}, answer {seq}"


def new_task(stage: str, state: str) -> dict[str, Any]:
    """Values of a task on which nobody has worked yet."""
    empty = [column.name for column in task.columns if column.nullable]
    return {**dict.fromkeys(empty), "stage": stage, "state": state, "attempts": 0, "token": 0, "beat": 0}


def new_tasks(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Stage, state and hash of tasks, by which they enter the log."""
    return [[row["stage"], row["state"], row_sha256(task, row)] for row in rows]


def row_sha256(table: Table, row: Mapping[str, Any]) -> str:
    """SHA-256 of what a row says in all columns that are covered, its key among them.

    Args:
        row: all of these columns, as they are about to be written or were read.
    """
    return digest([table.name, *(as_read(row[name]) for name, as_read in _columns(table))])


def covered_columns(table: Table) -> tuple[str, ...]:
    """Names of the columns that `row_sha256` covers."""
    return tuple(name for name, _ in _columns(table))


@cache
def _columns(table: Table) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    left_out = {*NOT_COVERED, *_HEAD}
    columns = [column for column in table.columns if str(column) not in left_out]
    return tuple((column.name, _as_read(column.type)) for column in columns)


def _as_read(kind: object) -> Callable[[Any], Any]:
    """From a value as it is written to what the database gives back, as JSON: 1 comes back as 1.0 from a float."""
    for base, as_read in ((Float, float), (Integer, int), (LargeBinary, lambda value: bytes(value).hex())):
        if isinstance(kind, base):
            return lambda value: None if value is None else as_read(value)
    return lambda value: value
