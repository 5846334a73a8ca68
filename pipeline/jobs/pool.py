"""Worker processes: a decoder that crashes costs the task that it was working on, not the run."""

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

# Starting a process also reaps every other child that has ended (multiprocessing's own housekeeping). If one thread did
# so while another waits for that child, its exit code could be lost: only one thread at a time does either.
_STARTS_AND_ENDS = threading.Lock()


class WorkerCrashedError(Exception):
    """The process working on a task is gone; callers add which task that was before they report it."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return "crashed or was stopped" + ("" if self.exit_code is None else f" (exit code {self.exit_code})")


class Pool(Generic[Task, Result]):
    """Does tasks in separate processes, which are started on demand.

    When this process is interrupted or dies, they end at once. Use as a context manager.

    Args:
        work: a module-level function; it is called with each task.
        workers: number of processes.
    """

    def __init__(self, work: Callable[[Task], Result], workers: int) -> None:
        self._processes = [_Process(work) for _ in range(workers)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(workers)

    def as_completed(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Result | Exception]]:
        """Every task as it ends, with its result, or with the GemslideError or WorkerCrashedError that ended it.

        Any other error is our own bug and is raised here.
        """
        pending = {self._threads.submit(self._do, task): task for task in tasks}
        for future in as_completed(pending):
            yield pending[future], self._result_or_error(future.result)

    def in_order(self, tasks: Sequence[Task]) -> Iterator[Result | Exception]:
        """As `as_completed`, in the order of the tasks."""
        for future in [self._threads.submit(self._do, task) for task in tasks]:
            yield self._result_or_error(future.result)

    @staticmethod
    def _result_or_error(result: Callable[[], Result]) -> Result | Exception:
        try:
            return result()
        except (GemslideError, WorkerCrashedError) as error:
            return error

    def _do(self, task: Task) -> Result:
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
        """Do one task. Returns its result, or raises its error.

        Raises:
            WorkerCrashedError: the process is gone. The next task starts another.
        """
        try:
            result, error = self._hand_over(task).recv()
        except (EOFError, OSError) as gone:
            raise WorkerCrashedError(self._forget()) from gone
        if error is not None:
            raise error
        return result

    def _hand_over(self, task: Any) -> Connection:
        """The connection to a process that has taken the task. If an idle one was killed, such as for lack of memory,
        that is not the task's fault: another takes it."""
        is_new = self._process is None
        try:
            return _give(self._connected(), task)
        except (EOFError, OSError):
            if is_new:
                raise
            self._forget()
            return _give(self._connected(), task)

    def _forget(self) -> int | None:
        """Discard this process; the next task starts another. Returns its exit code."""
        with self._lock:
            gone, self._process = self._process, None
        if gone is None:
            return None
        with _STARTS_AND_ENDS:
            gone.join()
            return gone.exitcode

    def end(self) -> None:
        """End the process now, whatever it is doing; its output serves the next run."""
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
                with _STARTS_AND_ENDS:
                    process.start()
                self._process = process
                theirs.close()
            return self._connection


def _give(connection: Connection, task: Any) -> Connection:
    connection.send(task)
    connection.recv()  # confirms that it was taken
    return connection


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Do tasks until the parent closes the connection."""
    begin_worker()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(None)
        connection.send(_outcome(work, task))


def _outcome(work: Callable[[Any], Any], task: Any) -> tuple[Any, Exception | None]:
    """Result or error of the work. Our own bugs go to the parent as well, with the traceback as a note."""
    try:
        return work(task), None
    except GemslideError as error:
        return None, error
    except MemoryError:  # treated as a crash of this task: the process ends, which frees its memory
        os._exit(errno.ENOMEM)
    except Exception as error:  # noqa: BLE001 - raised again by the parent
        error.add_note("".join(traceback.format_exception(error)))
        return None, error
