"""Workers on this machine: as many processes of `gemslide study work` as fit, started again when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from pipeline.study.starting.crash_loop import CrashLoop
from training.foundation.process import die_with_parent

WORKER_BYTES = 3 * 2**30
"""Memory that a worker may need: a model, its batch, and the slide's blocks (docs/benchmarks/inference.md)."""
GRACE_S = 20.0
_POLL_S = 0.1


def workers_that_fit() -> int:
    """Number of workers, by cores and free memory; at least one."""
    return max(1, min(len(os.sched_getaffinity(0)), psutil.virtual_memory().available // WORKER_BYTES))


def slots(devices: Sequence[str], workers: int | None, *, fit: int) -> list[str]:
    """Device of each worker: one worker per device, in turn if more are requested; on the CPU, as many as fit.

    Args:
        devices: as from `named_devices`; "cuda:0+cuda:1" is one.
        workers: requested number; None: as many as there are devices, and as fit.
    """
    is_cpu = all(device == "cpu" for device in devices)
    number = workers or (fit if is_cpu else min(fit, len(devices)))
    return [devices[index % len(devices)] for index in range(number)]


@dataclass
class _Running:
    command: list[str]
    process: subprocess.Popen[bytes]
    began: float


class LocalPool:
    """Processes that work on a study until it is over.

    Args:
        commands: one for each worker to run at a time.
        is_over: called when a worker has ended; if true, it is not started again.
    """

    def __init__(self, commands: Sequence[list[str]], is_over: Callable[[], bool]) -> None:
        self._commands = commands
        self._is_over = is_over
        threads = max(1, len(os.sched_getaffinity(0)) // len(commands))
        self._environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}

    def run(self) -> None:
        """Start the workers and wait for all. Anything that ends this process ends them too.

        Raises:
            ProcessFailedError: workers kept ending at once.
        """
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
        running = [self._start(command) for command in self._commands]
        early = CrashLoop()
        try:
            while running:
                for worker in [worker for worker in running if worker.process.poll() is not None]:
                    running.remove(worker)
                    if worker.process.returncode == 0 or self._is_over():
                        continue
                    how = f"with exit code {worker.process.returncode}; their output is above"
                    early.add(time.monotonic() - worker.began, how)
                    running.append(self._start(worker.command))
                time.sleep(_POLL_S)
        finally:
            end_processes([worker.process for worker in running])
            signal.signal(signal.SIGTERM, previous)

    def _start(self, command: list[str]) -> _Running:
        process = subprocess.Popen(command, env=self._environment, preexec_fn=die_with_parent)
        return _Running(command, process, time.monotonic())


def end_processes(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask workers to end, and kill those that do not within `GRACE_S`."""
    for process in processes:
        process.terminate()
    give_up = time.monotonic() + GRACE_S
    for process in processes:
        try:
            process.wait(max(0.0, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def worker_command(study_id: str, project: str, devices: str, *, parent: int | None = None) -> list[str]:
    """Command that starts a worker of a study on this machine.

    Args:
        parent: process with which it ends.
    """
    begin = "" if parent is None else f"from training.foundation.process import end_with; end_with({parent}); "
    own = [sys.executable, "-c", f"{begin}from pipeline.cli import main; main()"]
    return [*own, "study", "work", study_id, "--project", project, "--devices", devices]
