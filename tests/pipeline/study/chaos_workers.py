"""Workers to disturb: the process that they are forked from (`chaos_pool`), and its orders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path


@dataclass(frozen=True)
class Disturbance:
    """Number of workers, and the faults injected into them."""

    workers: int
    seed: int = 0
    kill_every_s: float = inf
    freeze_every_s: float = inf
    freeze_s: float = 0.0
    """Time that a worker stays frozen."""
    most_kills: float = inf
    most_freezes: float = inf
    """Bounds for a run that has to end soon, however slow the machine is."""


@dataclass(frozen=True)
class Order:
    """Order for workers on a study until it is over."""

    study_id: str
    project: str
    ledger: str
    counts: str
    """File for the final `Counts`, as JSON."""
    how: Disturbance

    @classmethod
    def parse(cls, line: str) -> Order:
        values = json.loads(line)
        return cls(**{**values, "how": Disturbance(**values["how"])})


@dataclass
class Counts:
    """Counts of what was done to workers."""

    started: int = 0
    killed: int = 0
    frozen: int = 0
    failures: list[str] = field(default_factory=list)
    """Descriptions of workers that ended by themselves but should not have."""


class Workers:
    """The process that workers are forked from.

    Args:
        log: output of all workers.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log, self._counts = process, log, log.with_suffix(".json")

    def begin(self, study_id: str, project: Path, ledger: str, how: Disturbance) -> None:
        self._counts.unlink(missing_ok=True)
        assert self._process.stdin
        order = Order(study_id, str(project), ledger, str(self._counts), how)
        print(json.dumps(asdict(order)), file=self._process.stdin, flush=True)

    def ended(self) -> Counts | None:
        """Counts of what was done to the workers; None while they work.

        Raises:
            AssertionError: the process itself is gone.
        """
        if self._counts.exists():
            return Counts(**json.loads(self._counts.read_text(encoding="utf-8")))
        # Not `poll`, after which the pid could be reused by another process, which would then be killed instead.
        gone = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert gone is None, f"no workers: {gone}. {self.last_words()}"
        return None

    def last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(["Last of all, the workers said:", *lines[-40:]])


@contextmanager
def worker_process(log: Path, environment: Mapping[str, str]) -> Iterator[Workers]:
    """Start the process; it and all workers end with the block."""
    command = [sys.executable, "-m", "tests.pipeline.study.chaos_pool"]
    its_own = {**os.environ, **environment, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=output, env=its_own, text=True, start_new_session=True
        )
    try:
        yield Workers(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
