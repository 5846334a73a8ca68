"""Processes that work on untrusted input, so that the process that serves pages and tiles does not.

Each does one piece of work after another, under `Limits`. One that takes longer is killed; the next piece of work
starts another. They are started on demand and end with the process that started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import IO, Any

from pipeline.bounded.limits import Limits, too_large, too_long
from pipeline.errors import BY_CODE, BadAnnotationError, ProcessFailedError
from training.foundation.errors import GemslideError

CHILD = "pipeline.bounded.child"
KILL_S = 1.0
"""Grace period for work that does not end at its limit."""
START_S = 30.0
"""Extra time for a process to start, with its first piece of work."""
MAX_WORKS = 200
"""Pieces of work per process, which bounds memory leaks."""


class BoundedProcesses:
    """Up to `most` idle processes; callers limit concurrency themselves (`anyio.CapacityLimiter`)."""

    def __init__(self, limits: Limits, *, most: int) -> None:
        self._limits, self._most = limits, most
        self._lock = threading.Lock()
        self._idle: list[_Process] = []

    def run(self, work: str, body: bytes, what: str, /, **options: Any) -> list[Any]:
        """Do a piece of work. Returns the parts of its result.

        Args:
            work: "package.module:function"; it is called with the body and the options, and returns parts that JSON
                can hold. They are parsed one by one, so that other threads can run in between.
            what: subject of the message, such as "the file".

        Raises:
            BadAnnotationError: it exceeded the limits. GemslideError: raised by the work.
            ProcessFailedError: the process failed.
        """
        process = self._take()
        try:
            head, *parts = process.ask({"work": work, "what": what, "options": options}, body, self._limits, what)
        except BaseException:
            process.end()
            raise
        self._give_back(process)
        if "code" in head:
            kind: type[GemslideError] = BY_CODE.get(head["code"], BadAnnotationError)
            raise kind(head["message"])
        return parts

    def close(self) -> None:
        """End the idle processes."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _take(self) -> _Process:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                process.end()
        return _Process()

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            if process.works < MAX_WORKS and len(self._idle) < self._most:
                self._idle.append(process)
                return
        process.end()


class _Process:
    """One child process."""

    def __init__(self) -> None:
        self.works = 0
        # Otherwise, libraries would reserve memory for every core of the machine.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin
        assert self._process.stdout
        self._said, self._heard = self._process.stdin, self._process.stdout

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: Mapping[str, Any], body: bytes, limits: Limits, what: str) -> list[Any]:
        """Raises BadAnnotationError: it was killed for exceeding its limits. ProcessFailedError: it failed."""
        self.works += 1
        is_late = threading.Event()

        def kill() -> None:
            is_late.set()
            self._process.kill()

        timer = threading.Timer(limits.seconds + KILL_S + (START_S if self.works == 1 else 0), kill)
        timer.daemon = True
        timer.start()
        try:
            send(self._said, {**question, "limits": asdict(limits)})
            send(self._said, body)
            head = json.loads(receive(self._heard))
            return [head, *(json.loads(receive(self._heard)) for _ in range(head.get("parts", 0)))]
        except (OSError, EOFError) as error:
            raise self._explain_exit(what, limits, is_late=is_late.is_set()) from error
        finally:
            timer.cancel()

    def _explain_exit(self, what: str, limits: Limits, *, is_late: bool) -> GemslideError:
        code = self._process.wait()
        if is_late or -code == signal.SIGXCPU:
            return too_long(what, limits)
        if code < 0:  # crashed out of memory, or killed by the system for it
            return too_large(what, limits)
        return ProcessFailedError(f"{what}: `python -m {CHILD}` failed with exit code {code}; see its output above.")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._heard.close()
        with contextlib.suppress(BrokenPipeError):  # unsent data are not needed
            self._said.close()


def send(stream: IO[bytes], content: bytes | Mapping[str, Any]) -> None:
    """Write bytes, or an object as JSON, preceded by their length."""
    data = content if isinstance(content, bytes) else json.dumps(content, allow_nan=False).encode()
    stream.write(len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Read the bytes that `send` wrote. Raises EOFError: the other end is closed."""
    length = _read_exactly(stream, 8)
    return _read_exactly(stream, int.from_bytes(length, "little"))


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise EOFError
    return data
