"""A worker: takes a task, does it, writes down how it ended, until there is nothing more to do.

Any number of them work on a study, each in a process of its own; they meet in the ledger alone. While one works, a
thread of it beats; when the ledger says that the task is no longer its own, it stops at its next step.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple, Protocol

from pipeline.jobs.stage import Stage
from pipeline.ledger.errors import LedgerUnavailableError
from pipeline.run_record import INTERNAL_ERROR, SlideOutcome
from pipeline.study.work.leases import Ended, Lease, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.retry import Answer, wait_for_ledger
from pipeline.study.work.shutdown import ShutdownRequest
from training.foundation.errors import GemslideError
from training.foundation.progress import Advance

MAY_HEAL = frozenset({"locked", "disk_full", "failed_process"})
"""Codes of what another time may not meet again."""
BEATS_PER_LEASE = 4
LONGEST_REST_S = 1.0


class Output(NamedTuple):
    """Output of a finished task."""

    sha256: str
    measures: str
    """Canonical JSON."""


class StudyWork(Protocol):
    """Work of a worker on a task."""

    def stage_of(self, lease: Lease) -> Stage: ...

    def output_of(self, lease: Lease) -> Output: ...

    def cleaned(self, lease: Lease, message: str) -> str:
        """The message without names of the slide's files: the ledger, and what is made of it, may hold it."""
        ...


class LostLeaseError(Exception):
    """Another worker has the task now; raised inside the work to end it."""


class Worker:
    """One process's work on one study.

    Args:
        said: called with each task that was done, and how it ended.
        tell: called with what is waited for, where the ledger cannot be reached or written.
        ending: whether this worker was asked to end.
    """

    def __init__(
        self,
        leases: Leases,
        limits: Limits,
        work: StudyWork,
        *,
        said: Callable[[Lease, Ended], None] = lambda lease, ended: None,
        tell: Callable[[str], None] = lambda why: None,
        ending: ShutdownRequest | None = None,
    ) -> None:
        self._leases = leases
        self._limits = limits
        self._work = work
        self._said, self._tell = said, tell
        self._ending = ending or ShutdownRequest()

    def run(self, study_id: str, *, until: Callable[[], bool]) -> int:
        """Work until nothing is left. Returns how many tasks were done here.

        Args:
            until: asked when no task can be taken: whether the study is over, or paused.

        Raises:
            KeyboardInterrupt: the worker was asked to end; its task is given back.
        """
        count = 0
        self._rest(0)
        lease = self._patiently(lambda: self._leases.take(study_id))
        rest_s = 0.05
        looked = 0.0
        while True:
            # Not only when there is nothing else to do: a slide would wait for its dead worker until the study's end.
            if time.monotonic() - looked >= min(1.0, self._limits.lease_s / BEATS_PER_LEASE):
                self._patiently(lambda: self._leases.steal(study_id))
                self._patiently(lambda: self._leases.free(study_id))
                looked = time.monotonic()
            if lease is not None:
                lease, count, rest_s = self._do(lease), count + 1, 0.05
                continue
            self._rest(0)
            if self._patiently(until):
                return count
            self._patiently(lambda: self._leases.free(study_id))
            lease = self._patiently(lambda: self._leases.take(study_id))
            if lease is None:
                self._rest(rest_s)
                rest_s = min(2 * rest_s, LONGEST_REST_S)

    def _do(self, lease: Lease) -> Lease | None:
        """One task to its end; the next one, where there is one."""
        try:
            every_s = self._limits.lease_s / BEATS_PER_LEASE
            with _beating(self._leases, lease, every_s) as advance, self._ending.stoppable():
                ended = self._ended(lease, advance)
                if ended.message:
                    ended = replace(ended, message=self._work.cleaned(lease, ended.message))
        except LostLeaseError:
            return None
        except KeyboardInterrupt:
            with suppress(GemslideError):  # the ledger is away or cannot be written: then the lease lapses
                self._leases.release(lease, "the worker was ended")
            raise
        takes_next = self._ending.signal is None
        counted, following = self._patiently(lambda: self._leases.finish(lease, ended, take_next=takes_next))
        if counted:
            self._said(lease, ended)
        return following

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        return wait_for_ledger(ask, warn=self._tell, rest=self._rest)

    def _rest(self, seconds: float) -> None:
        """Sleep; a worker that was asked to end does so here, without a task in its hands."""
        with self._ending.stoppable():
            time.sleep(seconds)

    def _ended(self, lease: Lease, advance: Advance) -> Ended:
        start = time.perf_counter()
        stage = None
        try:
            stage = self._patiently(lambda: self._work.stage_of(lease))
            report = stage.run(advance)
            output = self._work.output_of(lease)
        except GemslideError as error:
            return _ended_by_error(lease, error, time.perf_counter() - start)
        except OSError as error:  # a disk or a share that failed under one slide may come back
            said = f"slide {lease.slide_id}: {error.filename or 'a file'}: {error.strerror or error}."
            return Ended("again", "unreadable", said, time.perf_counter() - start)
        except MemoryError as error:
            said = stage.out_of_memory(str(error)) if stage else f"slide {lease.slide_id}: memory ran out."
            return Ended("again", "failed_process", said, time.perf_counter() - start)
        except LostLeaseError:
            raise
        except Exception as error:  # noqa: BLE001 - a defect of ours, which must not cost the slides that follow
            sys.stderr.write(self._work.cleaned(lease, traceback.format_exc()))
            outcome = SlideOutcome.from_defect(lease.slide_id, error, time.perf_counter() - start)
            return Ended("failed", INTERNAL_ERROR, outcome.message, outcome.seconds)
        sources = [found["sha256"] for found in report.inputs if found["id"] == lease.slide_id]
        seconds = round(time.perf_counter() - start, 3)
        source = sources[0] if sources else None
        return Ended("done", None, report.warning, seconds, output.sha256, source, output.measures)


def _ended_by_error(lease: Lease, error: GemslideError, seconds: float) -> Ended:
    outcome = SlideOutcome.from_error(lease.slide_id, error, seconds)
    # A ledger that is away says nothing of the slide.
    if outcome.code in MAY_HEAL or isinstance(error, LedgerUnavailableError):
        return Ended("again", outcome.code, outcome.message, outcome.seconds)
    assert outcome.status != "done"
    assert outcome.status != "skipped"
    return Ended(outcome.status, outcome.code, outcome.message, outcome.seconds)


class _UntilLost(Advance):
    """No bar; stops the work at its next step when the lease is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.is_lost = threading.Event()

    def __call__(self, steps: int) -> None:
        if self.is_lost.is_set():
            raise LostLeaseError


@contextmanager
def _beating(leases: Leases, lease: Lease, every_s: float) -> Iterator[Advance]:
    """Say that this worker lives, as long as the block lasts."""
    advance, over = _UntilLost(), threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            try:
                if not leases.beat(lease):
                    advance.is_lost.set()
                    return
            except GemslideError:  # the database is away for a while: the work goes on, the ledger decides in the end
                continue

    thread = threading.Thread(target=beat, name=f"beats for {lease.slide_id}", daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        over.set()
        thread.join()
