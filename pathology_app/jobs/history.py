"""Every run of the project, newest first: those that the app has started, and the records of all runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pathology_app.jobs.record import time_of
from pathology_app.jobs.state import JobState, JobStatus, status_of
from pipeline.project import Project
from training.foundation.errors import UnreadableError
from training.foundation.reading import read_json_file
from training.foundation.run_record import is_run_id
from training.foundation.words.counts import counted

MAX_RECORDS = 2000
"""Records whose summaries are kept in memory."""


@dataclass(frozen=True)
class RunRecordSummary:
    """Summary of a run record.

    Attributes:
        slides: number of slides by outcome.
        seconds: from its start to its end; None where not recorded.
        settings, epochs, models: as recorded; empty where it has none.
        unit: "patient" where `slides` counts patients: of inference with a slide-level model.
    """

    verb: str
    outcome: str
    about: str
    slides: Mapping[str, int]
    seconds: float | None
    settings: Mapping[str, Any]
    models: Mapping[str, str]
    unit: str = "slide"


@dataclass(frozen=True)
class RunSummary:
    """One run.

    Attributes:
        job: status of the app's job with this id; None where the app did not start it.
        record: its own record; None where there is none, or not yet.
        damage: problems with its files; empty where there are none.
    """

    run_id: str
    job: JobStatus | None = None
    record: RunRecordSummary | None = None
    damage: str = ""

    @property
    def began(self) -> datetime:
        """UTC."""
        return datetime.strptime(self.run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)

    @property
    def verb(self) -> str:
        return self.job.job.verb if self.job else self.record.verb if self.record else ""

    @property
    def about(self) -> str:
        return self.job.job.about if self.job else self.record.about if self.record else ""

    @property
    def runs(self) -> bool:
        return self.job is not None and self.job.runs

    @property
    def state(self) -> str:
        """In one word."""
        if self.job:
            return self.job.state
        if not self.record:
            return "damaged"
        if self.record.outcome in ("done", "interrupted"):
            return self.record.outcome
        return JobState.FAILED

    @property
    def unit(self) -> str:
        """What a run over slides names one by one: "slide" or "patient"."""
        return self.record.unit if self.record else "slide"

    @property
    def seconds(self) -> float | None:
        """From its start to its end, or until now; None where unknown."""
        if self.job and self.job.ending:
            return max(0.0, (time_of(self.job.ending.utc) - time_of(self.job.job.utc)).total_seconds())
        if self.job:
            return (datetime.now(UTC) - time_of(self.job.job.utc)).total_seconds() if self.job.runs else None
        return self.record.seconds if self.record else None


def run_ids(project: Project) -> list[str]:
    """All runs, newest first.

    Raises:
        OSError: the folder cannot be read.
    """
    names: set[str] = set()
    for folder in (project.runs_dir, project.jobs_dir):
        try:
            names.update(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted((name for name in stems if is_run_id(name) and _is_time(name)), reverse=True)


def list_runs(project: Project, run_ids: Sequence[str]) -> list[RunSummary]:
    """Summaries of runs; that of a run which cannot be read says so."""
    return [read_run(project, run_id) for run_id in run_ids]


def read_run(project: Project, run_id: str) -> RunSummary:
    """The summary of one run.

    Raises:
        UnreadableError: not a valid run id, or no such run.
    """
    if not is_run_id(run_id) or not _is_time(run_id):
        raise UnreadableError(f"run {run_id!r:.100}: not a valid run id. The runs page lists all runs.")
    damage: list[str] = []
    job, record = None, None
    try:
        job = status_of(project, run_id)
    except UnreadableError as error:
        damage.append(str(error))
    try:
        record = _recorded(project.runs_dir / f"{run_id}.json")
    except (OSError, ValueError) as error:
        damage.append(f"runs/{run_id}.json: cannot be read: {error!s:.300}.")
    if job is None and record is None and not damage:
        raise UnreadableError(f"run {run_id}: is not in this project. The runs page lists all runs.")
    return RunSummary(run_id, job, record, " ".join(damage))


def _recorded(path: Path) -> RunRecordSummary | None:
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _summary(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@lru_cache(maxsize=MAX_RECORDS)
def _summary(path: Path, version: tuple[int, ...]) -> RunRecordSummary:
    """Summary of a record, read once: that of a run over a whole cohort is long."""
    record = read_json_file(path)
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    verb, outcome = _text(record.get("verb")), _text(record.get("outcome"))
    settings, models = _table(record.get("settings")), _table(record.get("models"))
    slides = [slide for slide in _list(record.get("slides")) if isinstance(slide, dict)]
    states = Counter(_text(slide.get("status"))[:20] for slide in slides)
    seconds = _table(record.get("seconds"))
    took = seconds.get("total", seconds.get(verb))
    return RunRecordSummary(
        verb=verb,
        outcome=outcome,
        about=_about(verb, settings, models, len(slides)),
        slides=dict(states.most_common(20)),
        seconds=float(took) if isinstance(took, int | float) else None,
        settings=settings,
        models={_text(which): _text(model) for which, model in list(models.items())[:10]},
        unit="patient" if record.get("unit") == "patient" else "slide",
    )


def _about(verb: str, settings: Mapping[str, Any], models: Mapping[str, Any], slides: int) -> str:
    if verb == "train":
        data = _table(settings.get("data"))
        return _text(models.get("best") or data.get("tile_set") or data.get("encoder") or "")
    for name in ("model", "model_id", "tile_set", "format", "to"):
        if isinstance(settings.get(name), str):
            return _text(settings[name])
    return counted(slides, "slide") if slides else ""


def _text(value: object) -> str:
    return str("" if value is None else value)[:200]


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_time(run_id: str) -> bool:
    try:
        datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return False
    return True
