"""A study under all faults at once: killed workers, a database outage, a full disk, a stepping clock.

`make chaos-study` has 1,000 slides and eight workers: `python -m tests.pipeline.study.chaos --slides 1000 --seed 0`.
A random worker is killed (SIGKILL) every two seconds, and from time to time one is frozen until others have taken its
task. Meanwhile the database crashes, and is restarted once more; the disk with the project is filled; the workers'
wall clock is stepped an hour ahead, two hours back, and right again. Then every slide must be in exactly one terminal
state, the same as in a calm run, with the same bytes in its store and results; nothing done twice to the end; nothing
left behind; and the log must verify.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import select

from benchmarks.machine import circumstances
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import LEDGER_FILE
from pipeline.ledger.tables import task
from pipeline.project import Project
from pipeline.study.new_protocol import new_protocol
from pipeline.study.protocol import AboutStudy
from pipeline.study.work.study import begin_study
from tests.pipeline.study.chaos_cohort import write_cohort
from tests.pipeline.study.chaos_findings import A_STEP_S, Findings, find, last_time, wrong_with
from tests.pipeline.study.chaos_workers import Counts, Disturbance, Workers, worker_process
from tests.pipeline.study.stepping_clock import SteppingClock
from tests.postgres import Postgres
from tests.small_disk import small_disk
from tests.small_trained_project import TISSUE_TOML, SmallProject, make_small_project

STUDY = "s"
SETTINGS = f"""\
[ingest]
shard_px = 256
{TISSUE_TOML}
[infer]
require_qc = true
formats = ["csv", "parquet", "geojson"]
"""
"""Settings without images of the predictions, whose drawing would take most of the time."""
PATIENCE = "\n[patience]\nlease_s = 4\nmax_attempts = 100\nbackoff_s = 0.2\n"
"""Enough attempts that no slide is set aside because of faults injected into its workers."""
AHEAD_S, BEHIND_S = 3600, -3600
BYTES_PER_SLIDE, SPARE_BYTES = 2 * 2**20, 64 * 2**20
"""Size of the disk that is filled."""
POLL_S, MOST_S = 0.1, 60.0


class Broken(AssertionError):
    """A study did not keep its promise."""


@dataclass(frozen=True)
class Plan:
    """Numbers of slides and faults, and their durations."""

    slides: int
    how: Disturbance
    away_s: float = 3.0
    """Duration of the database outage."""
    full_s: float = 5.0
    """Minimum time that the disk is full."""
    limit_s: float = 7200.0
    """Time limit for the whole run."""


class Event(NamedTuple):
    """Action to take once a share of the slides has ended."""

    share: float
    what: str
    happen: Callable[[], object]


class Chaos:
    """One study in `folder`, the faults injected into it, and its outcome.

    Args:
        server: None for a ledger in SQLite, on the disk that is filled.
    """

    def __init__(
        self, plan: Plan, small_project: SmallProject, folder: Path, server: Postgres | None, *, say: bool = False
    ) -> None:
        self._plan, self._small_project, self._folder, self._server, self._says = (
            plan,
            small_project,
            folder,
            server,
            say,
        )
        self._began = time.monotonic()
        self._clock = SteppingClock(folder)
        (folder / "sources").mkdir()
        self._manifest = write_cohort(folder / "sources", plan.slides, plan.how.seed)

    def run(self) -> dict[str, Any]:
        """Run the study; return counts of what happened.

        Raises:
            Broken: a promise was not kept.
        """
        size = self._plan.slides * BYTES_PER_SLIDE + SPARE_BYTES
        disk = small_disk(self._folder / "disk", f"size={size}")
        with disk as folder, worker_process(self._folder / "workers.log", self._clock.environment) as workers:
            calm = self._calm(workers)
            self._say(f"calm: {_states(calm)}")
            start = time.monotonic()
            findings, counts = self._disturbed(workers, folder)
        if wrong := wrong_with(findings, calm) + counts.failures:
            raise Broken("\n".join([*wrong, workers.last_words()]))
        return self._happened(findings, counts, time.monotonic() - start)

    def _calm(self, workers: Workers) -> Findings:
        project = self._new_project(self._folder / "calm" / "project")
        url = f"sqlite:///{project.root / LEDGER_FILE}"
        with Ledger(Database(url)) as ledger:
            begin_study(project, STUDY, ledger, actor="calm")
            workers.begin(STUDY, project.root, url, Disturbance(len(os.sched_getaffinity(0))))
            self._wait(workers, ledger, [])
            findings = find(project, ledger, STUDY)
        shutil.rmtree(project.root.parent)
        return findings

    def _disturbed(self, workers: Workers, disk: Path) -> tuple[Findings, Counts]:
        project = self._new_project(disk / "project")  # as deep as the calm one's: protocols hold the path
        url = self._server.new_database() if self._server else f"sqlite:///{project.root / LEDGER_FILE}"
        with Ledger(Database(url)) as ledger:
            begin_study(project, STUDY, ledger, actor="chaos")
            workers.begin(STUDY, project.root, url, self._plan.how)
            counts = self._wait(workers, ledger, self._events(project, ledger))
            self._say("over; everything is compared")
            return find(project, ledger, STUDY), counts

    def _new_project(self, root: Path) -> Project:
        shutil.copytree(self._small_project.project.models_dir, root / "models")
        project = Project(root)
        project.settings_path.write_text(SETTINGS, encoding="utf-8")
        description = AboutStudy(title="Chaos", question="Is anything lost?", cohort=str(self._manifest))
        path = new_protocol(project, STUDY, description, [self._small_project.model_id])
        path.write_text(path.read_text(encoding="utf-8") + PATIENCE, encoding="utf-8")
        return project

    def _wait(self, workers: Workers, ledger: Ledger, events: list[Event]) -> Counts:
        """Wait until a study is over, while the events happen."""
        while (counts := workers.ended()) is None:
            if events and _ended(ledger) >= events[0].share * self._plan.slides:
                self._say(f"{_ended(ledger)} slides have ended: {events[0].what}")
                events.pop(0).happen()
            if time.monotonic() > self._began + self._plan.limit_s:
                raise Broken(f"not over after {self._plan.limit_s} s: {ledger.counts(STUDY)}. {workers.last_words()}")
            time.sleep(POLL_S)
        if events:
            raise Broken(f"proves nothing: it was over before this: {', '.join(event.what for event in events)}")
        return counts

    def _events(self, project: Project, ledger: Ledger) -> list[Event]:
        return [
            Event(0.1, "the database crashes", partial(self._database_away, project, is_crash=True)),
            Event(0.25, "the clock steps ahead", partial(self._step, ledger, AHEAD_S)),
            Event(0.4, "the disk is full", partial(self._fill, project.root.parent, ledger)),
            Event(0.55, "the clock steps back", partial(self._step, ledger, BEHIND_S)),
            Event(0.65, "the database is restarted", partial(self._database_away, project, is_crash=False)),
            Event(0.75, "the clock is right again", partial(self._step, ledger, 0)),
        ]

    def _step(self, ledger: Ledger, step_s: int) -> None:
        """Step the workers' clock, and wait until an entry has that time."""
        self._clock.set(step_s)
        give_up = time.monotonic() + MOST_S
        while abs(last_time(ledger, STUDY) - time.time() - step_s) > A_STEP_S and time.monotonic() < give_up:
            time.sleep(POLL_S)

    def _database_away(self, project: Project, *, is_crash: bool) -> None:
        if self._server is None:
            with sqlite3.connect(project.root / LEDGER_FILE, timeout=60, isolation_level=None) as other:
                other.execute("BEGIN EXCLUSIVE")
                time.sleep(self._plan.away_s)
                other.execute("ROLLBACK")
            other.close()
            return
        self._server.end() if is_crash else self._server.stop()
        time.sleep(self._plan.away_s)
        self._server.start()

    def _fill(self, disk: Path, ledger: Ledger) -> None:
        """Keep a disk full, including space that others free, for some time and until a write was refused."""
        ballast, start = disk / "ballast", time.monotonic()
        least, most = start + self._plan.full_s, start + self._plan.full_s + MOST_S
        was_refused = self._server is None  # a ledger on the full disk cannot record it
        with ballast.open("wb", buffering=0) as file:
            while time.monotonic() < least or (not was_refused and time.monotonic() < most):
                for piece in (2**20, 4096):
                    with suppress(OSError):
                        while True:
                            file.write(bytes(piece))
                was_refused = was_refused or _was_refused(ledger)
                time.sleep(POLL_S)
        ballast.unlink()

    def _happened(self, findings: Findings, counts: Counts, seconds: float) -> dict[str, Any]:
        if not (findings.actions["lease lapsed"] and sum(findings.retries.values()) and findings.clock_steps >= 3):
            raise Broken(
                f"proves nothing: {findings.actions}, {findings.retries}, {findings.clock_steps} steps of the clock"
            )
        return {
            "slides": self._plan.slides,
            "workers": self._plan.how.workers,
            "seed": self._plan.how.seed,
            "database": "postgresql" if self._server else "sqlite",
            "seconds": round(seconds, 1),
            "states": _states(findings),
            "killed": counts.killed,
            "frozen": counts.frozen,
            "started": counts.started,
            "leases lapsed": findings.actions["lease lapsed"],
            "late results refused": findings.actions["late result refused"],
            "tried again": dict(sorted(findings.retries.items())),
            "most attempts": findings.most_attempts,
            "database restarts": 2,
            "disk filled": 1,
            "clock steps in the log": findings.clock_steps,
            "clock stepped by": "a preloaded library, in all workers",
            "log entries": findings.entries,
            "different from a calm run": 0,
            "done twice": 0,
            "left behind": 0,
        }

    def _say(self, what: str) -> None:
        if self._says:
            print(f"{time.monotonic() - self._began:.0f} s: {what}", flush=True)


def _states(findings: Findings) -> dict[str, int]:
    return dict(sorted(Counter(state for state, _ in findings.slides.values()).items()))


def _ended(ledger: Ledger) -> int:
    counts = ledger.counts(STUDY)
    return counts.total - counts.slides["pending"]


def _was_refused(ledger: Ledger) -> bool:
    """Whether a task is waiting for another attempt because of a failed write or read."""
    codes = select(task.c.code).where(task.c.state == "ready", task.c.code.in_(("disk_full", "unreadable")))
    with ledger.database.read() as connection:
        return connection.scalar(codes.limit(1)) is not None


def summary(happened: Mapping[str, Any]) -> str:
    """One-line summary for people."""
    states = ", ".join(f"{number} {state}" for state, number in happened["states"].items())
    return (
        f"{happened['slides']} slides ({states}), {happened['killed']} kills, {happened['frozen']} freezes, "
        f"{happened['leases lapsed']} leases lapsed, {happened['late results refused']} late results refused, "
        f"{sum(happened['tried again'].values())} tasks tried again; as in a calm run, and the log verifies"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slides", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql")
    options = parser.parse_args()
    how = Disturbance(options.workers, options.seed, kill_every_s=2.0, freeze_every_s=20.0, freeze_s=8.0)
    with tempfile.TemporaryDirectory(prefix="gemslide-chaos-") as name:
        folder = Path(name)
        try:
            small_project = make_small_project(folder / "small_project")
            with _server(folder) if options.database == "postgresql" else nullcontext() as server:
                happened = Chaos(Plan(options.slides, how), small_project, folder, server, say=True).run()
        except (Broken, pytest.skip.Exception) as error:
            raise SystemExit(f"{type(error).__name__}: {error}") from error
    print(json.dumps({"benchmark": "study_chaos", **happened, **circumstances("tests.pipeline.study.chaos")}))
    print(summary(happened))


@contextmanager
def _server(folder: Path) -> Iterator[Postgres]:
    (folder / "pg").mkdir()
    server = Postgres(folder / "pg")
    try:
        yield server
    finally:
        server.end()


if __name__ == "__main__":
    main()
