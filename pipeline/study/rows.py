"""What the log's hashes cover of each kind of row; the rest (heartbeats, times of display) is not evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.study.chain import digest

STUDY = ("state", "version", "protocol_sha256", "manifest_sha256")
SLIDE = ("state", "code", "message", "source_sha256", "priority", "site", "scanner")
TASK = ("stage", "state", "attempts", "token", "owner", "code", "message", "output_sha256", "measures")

READING = ("slide_id", "arm", "state", "started_utc", "signed_utc", "seconds")

STUDY_SUBJECT = "study"
PROJECT_LOG = "@project"
"""In place of a study's name: the log of the project itself (`project_log.py`). No study can be called that."""
ERASED = "erased"
"""The code of a slide of which everything was erased on request; its name is `erased-` and its place in the cohort."""
SLIDE_ENTERED, TASKS_ADDED = "slide entered", "tasks added"
"""Actions of entries whose details have the slide's new tasks, as [stage, state]: they enter the log by it."""
ENTRIES_ERASED = "entries erased"
"""The action of an entry whose details have the numbers of the entries that were erased, as [first, last]."""
ANSWER_GIVEN = "answer given"
"""The action of an entry whose details have the hash of a reader's answer."""


def slide_subject(slide_id: str) -> str:
    return f"slide {slide_id}"


def task_subject(slide_id: str, stage: str) -> str:
    return f"task {slide_id}/{stage}"


def reading_subject(reader: str, session: int, position: int) -> str:
    return f"reading {reader}/{session}/{position}"


def new_task(stage: str, state: str) -> dict[str, Any]:
    """What a task says on which nobody has worked yet."""
    empty = dict.fromkeys(("owner", "code", "message", "output_sha256", "measures"))
    return {"stage": stage, "state": state, "attempts": 0, "token": 0, **empty}


def hash_row(row: Mapping[str, Any], columns: tuple[str, ...]) -> str:
    """SHA-256 of what a row says, in the columns of its kind."""
    return digest([row[name] for name in columns])
