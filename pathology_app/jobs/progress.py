"""How far a run is, by its log and its curves; looked up cheaply, so that a page can do it every few seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from pathology_app.jobs.curves import Curves, read_curves
from pathology_app.jobs.history import RunSummary
from pathology_app.jobs.job_log import Counted, Step, log_of
from pipeline.project import Project

_OF_SLIDES = ("ingest", "infer")
"""Verbs whose lines are about slides, one each."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        done, total: slides, or steps of a training; total None where it is not known.
        left_s: about how long the rest takes; None where that cannot be said.
        step: where it says it is.
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

    @property
    def is_whole(self) -> bool:
        """Whether its files were read to their ends; long ones take several looks."""
        return self.counted.is_whole and (self.curves is None or self.curves.is_whole)


def progress_of(project: Project, run: RunSummary) -> Progress:
    """How far a run is now.

    Raises:
        OSError: its files may not be read.
    """
    counted, lines = Counted(), list[str]()
    if run.job:
        log = log_of(project, run.run_id)
        try:
            lines = log.tail()
            counted = log.count() if run.verb in _OF_SLIDES else counted
        except FileNotFoundError:
            lines = ["(its log is not there any more)"]
    step = log_of(project, run.run_id).step(lines)
    if run.verb == "train":
        curves = read_curves(project, run.run_id) or Curves()
        return Progress(
            curves.steps_done, curves.num_steps, "steps", curves.left_s, counted, curves, step, tuple(lines)
        )
    total = run.job.job.slides if run.job else sum(run.record.slides.values()) if run.record else 0
    done = counted.slides if run.job else total or 0
    left_s = max(0, total - done) * run.seconds / done if done and total and run.seconds else None
    return Progress(done, total or None, "slides", left_s, counted, None, step, tuple(lines))
