"""Study workers on a Dask cluster: Dask finds them a place, and another one if a Dask worker dies.

Dask only starts workers. Each of its tasks is one study worker, which pulls its tasks from the ledger until the study
is over; nothing that Dask loses, repeats or delays changes a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from distributed import Client, Future

from pipeline.errors import ProcessFailedError
from pipeline.study.starting.crash_loop import CrashLoop
from pipeline.study.starting.dask_task import WorkerEnd, be_study_worker, count_live
from pipeline.study.starting.local_pool import GRACE_S
from pipeline.study.starting.monitor import StudyMonitor
from pipeline.study.starting.start_request import StartRequest
from training.foundation.errors import GemslideError

_POLL_S = 0.2
_LOOK_S = 2.0
_REMIND_S = 60.0


@dataclass
class DaskStarter:
    """Keeps study workers on a cluster until the study is over.

    Args:
        client: connected to the cluster.
        address: of its scheduler, for messages.
        workers: number at a time; those without a place wait in Dask for one.
        resources: share of each in a Dask worker, in Dask's sense.
        tell: called with a line for each task that ended, and for other events.
        mend: called repeatedly; if jobs of the cluster have ended, it may submit others.
    """

    client: Client
    address: str
    order: StartRequest
    workers: int
    watching: StudyMonitor
    resources: Mapping[str, float]
    tell: Callable[[str], None]
    mend: Callable[[], None] = lambda: None

    def run(self) -> None:
        """Start the workers and wait until the study is over. Anything that ends this process ends them, too.

        Raises:
            ProcessFailedError: workers kept ending at once; the scheduler is gone.
            BadRecipeError, UnreadableError: a Dask worker cannot reach the ledger or the project.
        """
        futures = [self._submit() for _ in range(self.workers)]
        early, looked, reminded = CrashLoop(), 0.0, time.monotonic()
        try:
            while futures:
                for future in [future for future in futures if future.done()]:
                    futures.remove(future)
                    if not self._is_enough(future, early):
                        futures.append(self._submit())
                if time.monotonic() - looked >= _LOOK_S:
                    looked = time.monotonic()
                    if self._look():
                        return
                if time.monotonic() - reminded >= _REMIND_S:
                    reminded = time.monotonic()
                    self._remind()
                time.sleep(_POLL_S)
        finally:
            self._end(futures)
            self._tell_news()

    def _submit(self) -> Future[WorkerEnd]:
        return self.client.submit(be_study_worker, self.order, pure=False, resources=dict(self.resources) or None)

    def _is_enough(self, future: Future[WorkerEnd], early: CrashLoop) -> bool:
        """Whether this worker needs no successor. Raises errors that another one cannot fix."""
        if future.status in ("cancelled", "lost"):
            raise ProcessFailedError(
                f"the Dask scheduler {self.address} is gone, or has forgotten this study's workers. "
                "They return their tasks and end. Finished work is kept; start again when the scheduler is back."
            )
        if future.status == "error":
            error = future.exception()
            if isinstance(error, GemslideError):
                raise error
            self.tell(f"a study worker was lost: {error}")
            early.add(0.0, f"of them by Dask: {error}")
            return False
        end: WorkerEnd = future.result()
        if end.code == 0 or self.watching.is_over():
            return True
        self.tell(f"a study worker on {end.host} ended with exit code {end.code}: {end.said} ({end.log})")
        early.add(end.seconds, f"on {end.host} with exit code {end.code}: {end.said}")
        return False

    def _look(self) -> bool:
        """Report what has ended; returns whether nothing is left to wait for, even if workers still wait in Dask."""
        self._tell_news()
        self.mend()
        return self.watching.is_over() and not self.watching.is_worked_on()

    def _tell_news(self) -> None:
        for line in self.watching.news():
            self.tell(line)

    def _remind(self) -> None:
        if not self.client.nthreads():
            self.tell("the Dask cluster has no workers yet; waiting for them.")

    def _end(self, futures: list[Future[WorkerEnd]]) -> None:
        """End the remaining workers, and wait until they have returned their tasks."""
        give_up = time.monotonic() + GRACE_S
        try:
            self.client.cancel(futures, force=True)
            while time.monotonic() < give_up:
                if not sum(self.client.run(count_live, self.order.run_id, on_error="ignore").values()):
                    return
                time.sleep(_POLL_S)
        except (OSError, RuntimeError, TimeoutError):  # no scheduler: then they end on their own
            return
