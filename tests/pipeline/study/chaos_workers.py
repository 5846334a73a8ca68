"""Workers to disturb: the process that they are forked from (`chaos_pool`), and what is ordered from it."""

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
    """How many workers there are, and what is done to them."""

    workers: int
    seed: int = 0
    kill_every_s: float = inf
    freeze_every_s: float = inf
    freeze_s: float = 0.0
    """How long one stands still."""


@dataclass(frozen=True)
class Order:
    """Workers for a study, until it is over."""

    study_id: str
    project: str
    ledger: str
    counts: str
    """File to write in the end: `Counts`, as JSON."""
    how: Disturbance

    @classmethod
    def parse(cls, line: str) -> Order:
        said = json.loads(line)
        return cls(**{**said, "how": Disturbance(**said["how"])})


@dataclass
class Counts:
    """What was done to workers."""

    started: int = 0
    killed: int = 0
    frozen: int = 0
    failures: list[str] = field(default_factory=list)
    """How workers ended by themselves that should not have."""


class Workers:
    """The process that workers are forked from.

    Args:
        log: what all of them say.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log, self._counts = process, log, log.with_suffix(".json")

    def begin(self, study_id: str, project: Path, ledger: str, how: Disturbance) -> None:
        self._counts.unlink(missing_ok=True)
        assert self._process.stdin
        order = Order(study_id, str(project), ledger, str(self._counts), how)
        print(json.dumps(asdict(order)), file=self._process.stdin, flush=True)

    def ended(self) -> Counts | None:
        """What was done to them; None as long as they work.

        Raises:
            AssertionError: the process itself is gone.
        """
        if self._counts.exists():
            return Counts(**json.loads(self._counts.read_text(encoding="utf-8")))
        assert self._process.poll() is None, f"no workers: {self._process.returncode}. {self.last_words()}"
        return None

    def last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(["Last of all, the workers said:", *lines[-40:]])


@contextmanager
def worker_process(log: Path, environment: Mapping[str, str]) -> Iterator[Workers]:
    """Start it; it and all workers end with the block."""
    command = [sys.executable, "-m", "tests.pipeline.study.chaos_pool"]
    its_own = {**os.environ, **environment, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=said, env=its_own, text=True, start_new_session=True
        )
    try:
        yield Workers(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
