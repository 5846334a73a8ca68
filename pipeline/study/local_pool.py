"""Workers on this machine: as many processes of `gemslide study work` as fit, started again when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from pipeline.errors import ProcessFailedError
from training.foundation.process import die_with_parent

WORKER_BYTES = 3 * 2**30
"""Memory that a worker may need: a model, its batch, and the slide's blocks (docs/benchmarks/inference.md)."""
GRACE_S = 20.0
MAX_EARLY_ENDS = 5
EARLY_S = 10.0
"""Workers that end sooner than this, one after another, will not do better a sixth time."""
_POLL_S = 0.1


def workers_that_fit() -> int:
    """By cores and free memory; at least one."""
    return max(1, min(len(os.sched_getaffinity(0)), psutil.virtual_memory().available // WORKER_BYTES))


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    began: float


class LocalPool:
    """Processes that work on a study until it is over.

    Args:
        command: of one worker.
        workers: how many at a time.
        is_over: asked when a worker ended; then nobody is started again.
    """

    def __init__(self, command: list[str], workers: int, is_over: Callable[[], bool]) -> None:
        self._command = command
        self._workers = workers
        self._is_over = is_over
        threads = max(1, len(os.sched_getaffinity(0)) // workers)
        self._environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}

    def run(self) -> None:
        """Start the workers and wait for all. Whatever ends this process ends them too.

        Raises:
            ProcessFailedError: workers ended at once, again and again.
        """
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        running = [self._start() for _ in range(self._workers)]
        early = 0
        try:
            while running:
                for each in [each for each in running if each.process.poll() is not None]:
                    running.remove(each)
                    if each.process.returncode == 0 or self._is_over():
                        continue
                    early = early + 1 if time.monotonic() - each.began < EARLY_S else 0
                    self._check(early, each.process.returncode)
                    running.append(self._start())
                time.sleep(_POLL_S)
        finally:
            _end([each.process for each in running])
            signal.signal(signal.SIGTERM, previous)

    def _start(self) -> _Running:
        process = subprocess.Popen(self._command, env=self._environment, preexec_fn=die_with_parent)
        return _Running(process, time.monotonic())

    def _check(self, early: int, code: int) -> None:
        if early >= MAX_EARLY_ENDS:
            raise ProcessFailedError(
                f"{early} workers ended within {EARLY_S:.0f} s of their start, the last with exit code {code}. What "
                "they said stands above. What was done is kept; mend it and run again."
            )


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    give_up = time.monotonic() + GRACE_S
    for process in processes:
        try:
            process.wait(max(0.0, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def worker_command(study_id: str, project: str, devices: str) -> list[str]:
    """How a worker of a study is started on this machine."""
    own = [sys.executable, "-c", "from pipeline.cli import main; main()"]
    return [*own, "study", "work", study_id, "--project", project, "--devices", devices]
