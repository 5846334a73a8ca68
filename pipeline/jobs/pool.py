"""Processes that work for this one: a decoder that crashes costs the piece of work it was at, not the run."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from pipeline.jobs.worker_process import begin_worker
from training.foundation.errors import GemslideError

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerCrashedError(Exception):
    """The process that was at a piece of work is gone; without words for people, who must know what it was at."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return "crashed or was stopped" + ("" if self.exit_code is None else f" (exit code {self.exit_code})")


class Pool(Generic[Task, Result]):
    """Does pieces of work in processes of their own, which are started when they are needed.

    When this process is interrupted or dies, they end at once. Use as a context manager.

    Args:
        work: a function of a module; it is called with each task.
        workers: processes.
    """

    def __init__(self, work: Callable[[Task], Result], workers: int) -> None:
        self._processes = [_Process(work) for _ in range(workers)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(workers)

    def as_completed(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Result | Exception]]:
        """Every task as it ends, with its result; or with the GemslideError or WorkerCrashedError that ended it.

        Any other error is a bug of ours, and is raised here.
        """
        pending = {self._threads.submit(self._one, task): task for task in tasks}
        for future in as_completed(pending):
            yield pending[future], self._ended(future.result)

    def in_order(self, tasks: Sequence[Task]) -> Iterator[Result | Exception]:
        """As `as_completed`, in the order of the tasks."""
        for future in [self._threads.submit(self._one, task) for task in tasks]:
            yield self._ended(future.result)

    @staticmethod
    def _ended(result: Callable[[], Result]) -> Result | Exception:
        try:
            return result()
        except (GemslideError, WorkerCrashedError) as error:
            return error

    def _one(self, task: Task) -> Result:
        process = self._idle.get()
        try:
            result: Result = process.do(task)
            return result
        finally:
            self._idle.put(process)

    def __enter__(self) -> Pool[Task, Result]:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.end()


class _Process:
    """One process, and the end of a pipe to it."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._has_ended = False
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def do(self, task: Any) -> Any:
        """The result of one task; what it raised is raised here.

        Raises:
            WorkerCrashedError: the process is gone. The next task starts another.
        """
        try:
            result, error = self._given(task).recv()
        except (EOFError, OSError) as gone:
            raise WorkerCrashedError(self._forget()) from gone
        if error is not None:
            raise error
        return result

    def _given(self, task: Any) -> Connection:
        """The connection to a process that has taken the task. One that was ended while it had nothing to do, by
        whoever was short of memory, is no fault of the task's: another takes it."""
        is_new = self._process is None
        try:
            return _give(self._connected(), task)
        except (EOFError, OSError):
            if is_new:
                raise
            self._forget()
            return _give(self._connected(), task)

    def _forget(self) -> int | None:
        """Let the next task have a new process. Returns the exit code of this one."""
        with self._lock:
            gone, self._process = self._process, None
        if gone is None:
            return None
        gone.join()
        return gone.exitcode

    def end(self) -> None:
        """End the process now, whatever it does; what it wrote serves the next run."""
        with self._lock:
            self._has_ended = True
            if self._process:
                self._process.kill()
                self._process.join()

    def _connected(self) -> Connection:
        with self._lock:
            if self._has_ended:
                raise EOFError
            if self._process is None or self._connection is None:
                # Spawned, not forked: this process has threads.
                context = multiprocessing.get_context("spawn")
                self._connection, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, self._work), daemon=True)
                process.start()
                self._process = process
                theirs.close()
            return self._connection


def _give(connection: Connection, task: Any) -> Connection:
    connection.send(task)
    connection.recv()  # that it was taken
    return connection


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Do what is asked for until nobody asks any more."""
    begin_worker()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(None)
        connection.send(_outcome(work, task))


def _outcome(work: Callable[[Any], Any], task: Any) -> tuple[Any, Exception | None]:
    """Result or error of the work. A bug of ours goes to the parent as well, with the traceback as its note."""
    try:
        return work(task), None
    except GemslideError as error:
        return None, error
    except MemoryError:  # of this piece of work, as a crash is: the process ends, and its memory with it
        os._exit(errno.ENOMEM)
    except Exception as error:  # noqa: BLE001 - raised again by the parent
        error.add_note("".join(traceback.format_exception(error)))
        return None, error
