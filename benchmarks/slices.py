"""Two pieces of work under the same conditions, in separate processes that run in turns of a quarter second.

A virtual machine's cores are at times half as fast for several seconds. Measured one after the other, two pieces of
work meet different slow spells; in turns they share them. A process that is not on turn is stopped (SIGSTOP) with all
its threads, and its clock stands still.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import Any

SLICE_S = 0.25
_SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Turns:
    """Turns of a piece of work, from its own point of view."""

    _stopped_s: Synchronized[float]
    _is_over: Synchronized[int]
    _parent: Connection

    def now(self) -> float:
        """Seconds of this process's turns so far, from an arbitrary origin."""
        return time.perf_counter() - self._stopped_s.value

    def ready(self) -> None:
        """Report that everything is loaded and warm; wait for the other piece of work."""
        self._parent.send("ready")
        self._parent.recv()

    @property
    def is_over(self) -> bool:
        """Whether the first piece of work has ended; the second one continues until then."""
        return bool(self._is_over.value)


Work = Callable[..., Any]
"""Module-level function called with Turns, then with the arguments. Its result is sent back."""


def in_turns(first: Work, second: Work, *arguments: Any) -> tuple[Any, Any]:
    """Run two pieces of work in turns until the first has ended, and return their results.

    Args:
        arguments: arguments of both.
    """
    processes = [_Process(work, arguments) for work in (first, second)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.connection.send("go")
        while not processes[0].connection.poll():
            for process in processes:
                process.have_a_turn()
        first_result = processes[0].connection.recv()
        processes[1].is_over.value = 1
        processes[1].go_on()
        return first_result, processes[1].connection.recv()
    finally:
        for process in processes:
            process.end()


class _Process:
    def __init__(self, work: Work, arguments: tuple[Any, ...]) -> None:
        self.connection, self._theirs = _SPAWN.Pipe()
        self._stopped_s: Synchronized[float] = _SPAWN.Value("d", 0.0)
        self.is_over: Synchronized[int] = _SPAWN.Value("i", 0)
        turns = (self._stopped_s, self.is_over, self._theirs)
        self._process = _SPAWN.Process(target=_run, args=(work, turns, arguments), daemon=True)
        self._stopped_at = 0.0

    def start(self) -> None:
        self._process.start()
        self._theirs.close()
        assert self.connection.recv() == "ready"
        self._stop()

    def have_a_turn(self) -> None:
        self.go_on()
        ends = time.perf_counter() + SLICE_S
        while (left_s := ends - time.perf_counter()) > 0:
            time.sleep(left_s)
        self._stop()

    def go_on(self) -> None:
        self._stopped_s.value += time.perf_counter() - self._stopped_at
        os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        with suppress(AssertionError, ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)
        self._process.kill()
        self._process.join()

    def _stop(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)
        self._stopped_at = time.perf_counter()

    @property
    def _pid(self) -> int:
        assert self._process.pid
        return self._process.pid


def _run(work: Work, turns: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
    turns[2].send(work(Turns(*turns), *arguments))
