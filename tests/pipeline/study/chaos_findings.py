"""Contents of a study's ledger and folders, and what must be true of them when it is over."""

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

from pipeline.ledger.chain import digest
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import task_subject
from pipeline.ledger.tables import SLIDE_ENDS, audit, slide, task
from pipeline.project import Project
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.origin import origin_file
from tests.pipeline.ingest.store_bytes import tree
from tests.small_trained_project import sha256_by_file

A_STEP_S = 1800.0
"""Consecutive entries further apart than this, in either direction, were written before and after a clock step."""
MOST_NAMED = 5


@dataclass(frozen=True)
class Findings:
    """Findings about a study that is over.

    Args:
        slides: state and code of each slide.
        tasks: state of each task, SHA-256 of its output, and its measures for the report.
        files: SHA-256 of every file of stores and results.
        hidden: temporaries, journals and other names that begin with a dot.
        broken: findings of `verify`.
    """

    slides: Mapping[str, tuple[str, str | None]]
    tasks: Mapping[str, tuple[str, str | None, str | None]]
    files: Mapping[str, str]
    hidden: tuple[str, ...]
    actions: Mapping[str, int]
    retries: Mapping[str, int]
    """Number of retries by code."""
    done_twice: tuple[str, ...]
    clock_steps: int
    """Number of clock steps visible in the log's times."""
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
        tasks={
            task_subject(row.slide_id, row.stage): (row.state, row.output_sha256, _timeless(row.measures))
            for row in tasks
        },
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
    """Time of the last log entry, in seconds since 1970."""
    newest = select(audit.c.utc).where(audit.c.study_id == study_id).order_by(audit.c.seq.desc()).limit(1)
    with ledger.database.read() as connection:
        return datetime.fromisoformat(str(connection.scalar(newest))).timestamp()


def wrong_with(findings: Findings, calm: Findings) -> list[str]:
    """Faults after a run, by comparison with an undisturbed run of the same slides."""
    states = Counter(state for state, _ in findings.slides.values())
    return [
        *(f"the log: {what}" for what in findings.broken),
        *(f"{slide_id}: is {state}" for slide_id, (state, _) in findings.slides.items() if state not in SLIDE_ENDS),
        *(
            f"{subject}: is {state}"
            for subject, (state, *_) in findings.tasks.items()
            if state not in ("done", "ended")
        ),
        *([] if states.total() == len(calm.slides) else [f"{states.total()} slides of {len(calm.slides)}: {states}"]),
        *_differences("slide", findings.slides, calm.slides),
        *_differences("output of", findings.tasks, calm.tasks),
        *_differences("file", findings.files, calm.files),
        *(f"{subject}: was done twice to the end" for subject in findings.done_twice),
        *(f"left behind: {name}" for name in findings.hidden),
    ]


def _entries(connection: Connection, study_id: str) -> Iterator[dict[str, Any]]:
    columns = (audit.c.utc, audit.c.action, audit.c.subject, audit.c.details)
    for row in connection.execute(select(*columns).where(audit.c.study_id == study_id).order_by(audit.c.seq)):
        yield {**row._mapping, "details": json.loads(row.details)}


def _files(project: Project) -> dict[str, str]:
    """SHA-256 of everything in stores and results, except for recorded times."""
    digests = {f"results/{name}": sha256 for name, sha256 in sha256_by_file(project.results_dir).items()}
    for path in project.results_dir.rglob(origin_file("*")):
        content_kept = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "utc"}
        digests[f"results/{path.relative_to(project.results_dir)}"] = digest(content_kept)
    for slide_id in project.slide_ids():
        for name, content in tree(project.store_path(slide_id)).items():
            digests[f"slides/{slide_id}/{name}"] = hashlib.sha256(content).hexdigest()
    return digests


def _hidden(project: Project) -> Iterator[str]:
    for folder, folders, files in os.walk(project.root):
        yield from (
            os.path.relpath(os.path.join(folder, name), project.root) for name in folders + files if name[0] == "."
        )


def _timeless(measures: str | None) -> str | None:
    """Measures without the hash of the store's metadata, which contain the time of ingest."""
    if measures is None:
        return None
    return json.dumps({name: value for name, value in json.loads(measures).items() if name != "root_sha256"})


def _differences(what: str, ours: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    different = sorted(name for name in ours.keys() | wanted.keys() if ours.get(name) != wanted.get(name))
    shown = [f"{what} {name}: {ours.get(name)}, in a calm run {wanted.get(name)}" for name in different[:MOST_NAMED]]
    return shown + ([f"and {len(different) - MOST_NAMED} more of {what}"] if len(different) > MOST_NAMED else [])
