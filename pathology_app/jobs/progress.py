"""Progress of a run, from its log and its curves; cheap enough for a page to look up every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pathology_app.jobs.curves import Curves, read_curves
from pathology_app.jobs.history import RunSummary
from pathology_app.jobs.job_log import GOOD_STATES, Counted, Step, log_of
from pipeline.project import Project

_OF_SLIDES = ("ingest", "infer")
"""Verbs that print one line per slide."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        done, total: slides or patients with a result, or training steps, as `unit` says; total None where it is not
            known.
        failed: slides that ended without a result.
        left_s: estimated time to the end; None where unknown.
        step: the progress that it reports.
        lines: the end of its log.
    """

    done: int
    total: int | None
    unit: str
    left_s: float | None
    counted: Counted = field(default_factory=Counted)
    curves: Curves | None = None
    step: Step | None = None
    lines: tuple[str, ...] = ()
    failed: int = 0

    @property
    def ended(self) -> int:
        """Slides that are finished, with or without a result; or steps done."""
        return self.done + self.failed

    @property
    def is_whole(self) -> bool:
        """Whether its files were read to the end; long ones take several reads."""
        return self.counted.is_whole and (self.curves is None or self.curves.is_whole)


def progress_of(project: Project, run: RunSummary) -> Progress:
    """Progress of a run now.

    Raises:
        OSError: its files cannot be read.
    """
    counted, lines = Counted(), list[str]()
    if run.job:
        log = log_of(project, run.run_id)
        try:
            lines = log.tail()
            counted = log.count() if run.verb in _OF_SLIDES else counted
        except FileNotFoundError:
            lines = ["(its log no longer exists)"]
    step = log_of(project, run.run_id).step(lines)
    if run.verb == "train":
        curves = read_curves(project, run.run_id) or Curves()
        return Progress(curves.steps_done, curves.num_steps, "step", curves.left_s, counted, curves, step, tuple(lines))
    states = counted.states if run.job else run.record.slides if run.record else {}
    done, failed = _done_and_failed(states)
    total = run.job.job.slides if run.job else done + failed
    ended = done + failed
    left_s = max(0, total - ended) * run.seconds / ended if ended and total and run.seconds else None
    return Progress(done, total or None, run.unit, left_s, counted, None, step, tuple(lines), failed)


def _done_and_failed(states: Mapping[str, int]) -> tuple[int, int]:
    done = sum(number for state, number in states.items() if state in GOOD_STATES)
    return done, sum(states.values()) - done
