"""The runner: a stage on each slide of a cohort, one after another here or several at a time in processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pipeline.errors import UnreadableError
from pipeline.jobs.pool import Pool, WorkerCrashedError
from pipeline.jobs.stage import Stage, StageReport
from pipeline.progress import Advance, bar, no_bar
from pipeline.run_record import SlideOutcome
from training.foundation.errors import GemslideError

Done = Callable[[StageReport], None]


def run_stages(stages: Sequence[Stage], done: Done, *, workers: int = 1) -> None:
    """Run a stage on each slide; what is wrong with one does not stop the others.

    When this process is interrupted or dies, those that work for it end at once.

    Args:
        done: called in this thread for every slide as it ends.
        workers: slides at a time; 1 does them in this process, with a progress bar for each.
    """
    if workers == 1 or len(stages) <= 1:
        for stage in stages:
            done(_run_here(stage))
        return
    with bar(stages[0].name, total=len(stages)) as advance, Pool(_run, min(workers, len(stages))) as pool:
        for stage, report in pool.as_completed(stages):
            done(report if isinstance(report, StageReport) else _ended(stage, report))
            advance(1)


def _run_here(stage: Stage) -> StageReport:
    with bar(f"{stage.name} {stage.slide_id}") as advance:
        return _run(stage, advance)


def _run(stage: Stage, advance: Advance = no_bar) -> StageReport:
    """A worker shows no bar."""
    start = time.perf_counter()
    try:
        return stage.run(advance)
    except (GemslideError, OSError) as error:
        return _refused(stage, error, time.perf_counter() - start)


def _refused(stage: Stage, error: GemslideError | OSError, seconds: float) -> StageReport:
    """A disk that fails under one slide does not stop the others either."""
    if isinstance(error, OSError):
        error = UnreadableError(
            f"slide {stage.slide_id}: {error.filename or 'a file'}: {error.strerror or error}. "
            "Check that the disk is there and that you may read and write on it, and run again."
        )
    return StageReport(SlideOutcome.from_error(stage.slide_id, error, seconds))


def _ended(stage: Stage, error: Exception) -> StageReport:
    if isinstance(error, WorkerCrashedError):
        error = UnreadableError(stage.crashed(str(error)))
    assert isinstance(error, GemslideError)
    return _refused(stage, error, 0.0)
