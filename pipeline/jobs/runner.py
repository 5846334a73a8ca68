"""The runner: a stage on each slide of a cohort, one after another here or several at a time in other processes."""

from __future__ import annotations

import errno
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from pipeline.errors import ProcessFailedError
from pipeline.jobs.pool import Pool, WorkerCrashedError
from pipeline.jobs.stage import Stage, StageReport
from pipeline.run_record import SlideOutcome
from training.foundation.errors import GemslideError, UnreadableError
from training.foundation.progress import Advance, bar, no_bar

Done = Callable[[StageReport], None]


def run_stages(stages: Sequence[Stage], done: Done, *, workers: int = 1) -> None:
    """Run a stage on each slide; a fault in one slide, or a bug of ours, does not stop the others.

    When this process is interrupted or dies, its workers end at once.

    Args:
        done: called in this thread for each slide as it ends.
        workers: slides at a time; 1 does them in this process, with a progress bar for each.
    """
    if workers == 1 or len(stages) <= 1:
        for stage in stages:
            done(_run_here(stage))
        return
    with bar(stages[0].name, total=len(stages)) as advance, Pool(_run, min(workers, len(stages))) as pool:
        for stage, report in pool.as_completed(stages):
            done(report if isinstance(report, StageReport) else _report_failure(stage, report))
            advance(1)


def run_overlapping(stages: Sequence[Stage], done: Done) -> None:
    """As `run_stages` in this process, two slides at a time: one is prepared or written while the other is computed.

    For stages that take turns at scarce resources, such as a device, by themselves. When this process is interrupted,
    both slides stop at their next step.
    """
    if len(stages) <= 1:
        run_stages(stages, done)
        return
    until = _UntilStopped()
    with bar(stages[0].name, total=len(stages)) as advance, ThreadPoolExecutor(2, "slide") as pool:
        try:
            for future in as_completed([pool.submit(_run_in_this_process, stage, until) for stage in stages]):
                done(future.result())
                advance(1)
        except BaseException:
            until.stopped.set()
            pool.shutdown(cancel_futures=True)
            raise


class _UntilStopped(Advance):
    """No progress bar; interrupts at the next step once `stopped` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = threading.Event()

    def __call__(self, steps: int) -> None:
        if self.stopped.is_set():
            raise KeyboardInterrupt


def _run_here(stage: Stage) -> StageReport:
    with bar(f"{stage.name} {stage.slide_id}") as advance:
        return _run_in_this_process(stage, advance)


def _run_in_this_process(stage: Stage, advance: Advance) -> StageReport:
    """Run a stage. If memory runs out, its slide fails, and its memory is freed for the next."""
    try:
        return _run(stage, advance)
    except MemoryError as error:
        return _refused(stage, ProcessFailedError(stage.out_of_memory(str(error))), 0.0)


def _run(stage: Stage, advance: Advance = no_bar) -> StageReport:
    """Run a stage; a worker shows no bar."""
    start = time.perf_counter()
    try:
        return stage.run(advance)
    except (GemslideError, OSError) as error:
        return _refused(stage, error, time.perf_counter() - start)
    except MemoryError:  # of this slide: a worker ends, which frees its memory
        raise
    except Exception as error:  # noqa: BLE001 - our own defect must not cost the slides that follow
        traceback.print_exc()
        return StageReport(SlideOutcome.from_defect(stage.slide_id, error, time.perf_counter() - start))


def _refused(stage: Stage, error: GemslideError | OSError, seconds: float) -> StageReport:
    """Report of a slide that failed; a disk error on one slide does not stop the others either."""
    if isinstance(error, OSError):
        error = UnreadableError(
            f"slide {stage.slide_id}: {error.filename or 'a file'}: {error.strerror or error}. "
            "Check that the disk is available and that you may read and write on it, and run again."
        )
    return StageReport(SlideOutcome.from_error(stage.slide_id, error, seconds))


def _report_failure(stage: Stage, error: Exception) -> StageReport:
    if isinstance(error, WorkerCrashedError):
        ran_out = error.exit_code == errno.ENOMEM
        error = ProcessFailedError(stage.out_of_memory("")) if ran_out else UnreadableError(stage.crashed(str(error)))
    assert isinstance(error, GemslideError)
    return _refused(stage, error, 0.0)
