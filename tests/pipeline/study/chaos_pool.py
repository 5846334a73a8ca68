"""Workers of a study that are randomly killed, frozen and restarted until the study is over.

A process that follows the orders on its standard input (`Order`), one pool after the other. Every worker is
`gemslide study work`, forked from here, where libraries and models are loaded, so that time is spent on work rather
than on starting.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import pipeline.cli
from pipeline.files import write_text_atomic
from pipeline.inference.stage import open_devices
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.protocol import find_models
from pipeline.study.work.study import open_study
from tests.pipeline.study.chaos_workers import Counts, Order

POLL_S = 0.02
MOST_FAILURES = 20


class ChaosPool:
    """Runs one order."""

    def __init__(self, order: Order) -> None:
        self._order, self._how, self._random = order, order.how, random.Random(order.how.seed)
        self._running: set[int] = set()
        self._killed: set[int] = set()
        self._thaw: tuple[int, float] | None = None
        self._is_over = False
        self.counts = Counts()

    def run(self) -> None:
        """Run until every worker has found that the study is over."""
        kill_at = time.monotonic() + self._how.kill_every_s
        freeze_at = time.monotonic() + self._how.freeze_every_s
        while self._running or not self._is_over:
            while not self._is_over and len(self._running) < self._how.workers:
                self._start()
            now = time.monotonic()
            if now >= kill_at and self.counts.killed < self._how.most_kills:
                self._kill_one()
                kill_at = now + self._how.kill_every_s
            if now >= freeze_at and self.counts.frozen < self._how.most_freezes:
                self._freeze_one(now)
                freeze_at = now + self._how.freeze_every_s
            self._end_freeze(now)
            self._bury()
            time.sleep(POLL_S)

    def _start(self) -> None:
        pid = os.fork()
        if pid == 0:
            _work(["gemslide", "study", "work", self._order.study_id, "--project", self._order.project])
        self._running.add(pid)
        self.counts.started += 1

    def _kill_one(self) -> None:
        pid = self._random.choice(sorted(self._running))
        os.kill(pid, signal.SIGKILL)
        self._killed.add(pid)
        self.counts.killed += 1

    def _freeze_one(self, now: float) -> None:
        """Freeze a worker like a closed laptop or a lost network: others take its task, and it comes back."""
        if self._thaw is None and not self._is_over:
            pid = self._random.choice(sorted(self._running))
            os.kill(pid, signal.SIGSTOP)
            self._thaw = pid, now + self._how.freeze_s
            self.counts.frozen += 1

    def _end_freeze(self, now: float) -> None:
        if self._thaw and (now >= self._thaw[1] or self._thaw[0] not in self._running):
            if self._thaw[0] in self._running:
                os.kill(self._thaw[0], signal.SIGCONT)
            self._thaw = None

    def _bury(self) -> None:
        for pid in sorted(self._running):
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if not ended_pid:
                continue
            self._running.remove(pid)
            code = os.waitstatus_to_exitcode(status)
            if code == 0:
                self._is_over = True
            elif not (code == -signal.SIGKILL and pid in self._killed):
                self.counts.failures.append(f"worker {pid} ended with {code}")
                if len(self.counts.failures) > MOST_FAILURES:
                    raise SystemExit(f"workers end by themselves: {self.counts.failures}")


def _work(command: list[str]) -> NoReturn:
    """Run as `gemslide …`, and exit."""
    sys.argv = command
    code: object = 1
    try:
        pipeline.cli.main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - this process has nobody above who would say it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _warm_up(project: Project, study_id: str) -> None:
    """Load the models, so that forked workers can begin at once."""
    with open_ledger(project) as ledger:
        study = open_study(project, study_id, ledger)
    for package in find_models(study.protocol, project).values():
        open_devices(package, ("cpu",), study.protocol.infer)
    assert threading.active_count() == 1, "a fork would lack all threads but one"


def main() -> None:
    for line in sys.stdin:
        order = Order.parse(line)
        os.environ[LEDGER_VARIABLE] = order.ledger
        _warm_up(Project(Path(order.project)), order.study_id)
        pool = ChaosPool(order)
        pool.run()
        write_text_atomic(Path(order.counts), json.dumps(asdict(pool.counts)))


if __name__ == "__main__":
    main()
