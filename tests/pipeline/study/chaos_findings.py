"""What a study has left in its ledger and its folders, and what must be true of it when it is over."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, select

from pipeline.project import Project
from pipeline.study.chain import digest
from pipeline.study.ledger import Ledger
from pipeline.study.origin import origin_file
from pipeline.study.rows import task_subject
from pipeline.study.tables import SLIDE_ENDS, audit, slide, task
from pipeline.study.verify import verify_log
from tests.pipeline.ingest.store_bytes import tree
from tests.small_road import sha256_by_file

A_STEP_S = 1800.0
"""Entries that follow each other and lie further apart, either way, were written before and after a clock stepped."""
MOST_NAMED = 5


@dataclass(frozen=True)
class Findings:
    """A study that is over.

    Args:
        slides: state and code of each slide.
        tasks: state of each task, SHA-256 of what it left, and what the report will say of that.
        files: SHA-256 of every file of stores and results.
        hidden: temporaries, journals and whatever else begins with a dot.
        broken: findings of `verify`.
    """

    slides: Mapping[str, tuple[str, str | None]]
    tasks: Mapping[str, tuple[str, str | None, str | None]]
    files: Mapping[str, str]
    hidden: tuple[str, ...]
    actions: Mapping[str, int]
    retries: Mapping[str, int]
    """By code."""
    done_twice: tuple[str, ...]
    clock_steps: int
    """That the log's times show."""
    most_attempts: int
    entries: int
    broken: tuple[str, ...]


def find(project: Project, ledger: Ledger, study_id: str) -> Findings:
    verified = verify_log(ledger.database, study_id)
    with ledger.database.read() as connection:
        slides = connection.execute(select(slide).where(slide.c.study_id == study_id)).all()
        tasks = connection.execute(select(task).where(task.c.study_id == study_id)).all()
        log = list(_entries(connection, study_id))
    done = Counter(entry["subject"] for entry in log if entry["action"] == "task done")
    times = [datetime.fromisoformat(entry["utc"]).timestamp() for entry in log]
    again = [entry["details"]["code"] for entry in log if entry["action"] == "task to be tried again"]
    return Findings(
        slides={row.slide_id: (row.state, row.code) for row in slides},
        tasks={task_subject(row.slide_id, row.stage): (row.state, row.output_sha256, row.measures) for row in tasks},
        files=_files(project),
        hidden=tuple(_hidden(project)),
        actions=Counter(entry["action"] for entry in log),
        retries=Counter(again),
        done_twice=tuple(subject for subject, times in done.items() if times > 1),
        clock_steps=sum(abs(later - earlier) > A_STEP_S for earlier, later in pairwise(times)),
        most_attempts=max(row.attempts for row in tasks),
        entries=verified.entries,
        broken=verified.findings,
    )


def last_time(ledger: Ledger, study_id: str) -> float:
    """What the last entry of the log says that the time was, in seconds since 1970."""
    newest = select(audit.c.utc).where(audit.c.study_id == study_id).order_by(audit.c.seq.desc()).limit(1)
    with ledger.database.read() as connection:
        return datetime.fromisoformat(str(connection.scalar(newest))).timestamp()


def wrong_with(found: Findings, calm: Findings) -> list[str]:
    """What is not as it should be after a run, beside an undisturbed one of the same slides."""
    states = Counter(state for state, _ in found.slides.values())
    return [
        *(f"the log: {what}" for what in found.broken),
        *(f"{slide_id}: is {state}" for slide_id, (state, _) in found.slides.items() if state not in SLIDE_ENDS),
        *(f"{subject}: is {state}" for subject, (state, *_) in found.tasks.items() if state not in ("done", "ended")),
        *([] if states.total() == len(calm.slides) else [f"{states.total()} slides of {len(calm.slides)}: {states}"]),
        *_differences("slide", found.slides, calm.slides),
        *_differences("output of", found.tasks, calm.tasks),
        *_differences("file", found.files, calm.files),
        *(f"{subject}: was done twice to the end" for subject in found.done_twice),
        *(f"left behind: {name}" for name in found.hidden),
    ]


def _entries(connection: Connection, study_id: str) -> Iterator[dict[str, Any]]:
    columns = (audit.c.utc, audit.c.action, audit.c.subject, audit.c.details)
    for row in connection.execute(select(*columns).where(audit.c.study_id == study_id).order_by(audit.c.seq)):
        yield {**row._mapping, "details": json.loads(row.details)}


def _files(project: Project) -> dict[str, str]:
    """SHA-256 of everything in stores and results, but for the times that they say."""
    found = {f"results/{name}": sha256 for name, sha256 in sha256_by_file(project.results_dir).items()}
    for path in project.results_dir.rglob(origin_file("*")):
        said = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "utc"}
        found[f"results/{path.relative_to(project.results_dir)}"] = digest(said)
    for slide_id in project.slide_ids():
        for name, content in tree(project.store_path(slide_id)).items():
            found[f"slides/{slide_id}/{name}"] = hashlib.sha256(content).hexdigest()
    return found


def _hidden(project: Project) -> Iterator[str]:
    for folder, folders, files in os.walk(project.root):
        yield from (
            os.path.relpath(os.path.join(folder, name), project.root) for name in folders + files if name[0] == "."
        )


def _differences(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    different = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    shown = [f"{what} {name}: {found.get(name)}, in a calm run {wanted.get(name)}" for name in different[:MOST_NAMED]]
    return shown + ([f"and {len(different) - MOST_NAMED} more of {what}"] if len(different) > MOST_NAMED else [])
