"""Many slides at a time, each in a process of its own: a decoder that crashes takes one slide with it, not the run."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from queue import SimpleQueue

from pipeline.config import IngestConfig
from pipeline.errors import GemslideError, UnreadableError
from pipeline.ingest.ingest import IngestReport, IngestRequest, ingest_slide
from pipeline.jobs.worker_process import begin_worker
from pipeline.project import Project

Result = IngestReport | GemslideError


def ingest_many(
    requests: Sequence[IngestRequest],
    project: Project,
    config: IngestConfig,
    *,
    workers: int,
    done: Callable[[IngestRequest, Result], None],
) -> None:
    """Ingest slides, `workers` at a time; what is wrong with one does not stop the others.

    When this process is interrupted or dies, those that read slides end at once; another run goes on where they were.

    Args:
        done: called in this thread for every slide as it ends, with what became of it.
    """
    processes = [_Process() for _ in range(workers)]
    idle: SimpleQueue[_Process] = SimpleQueue()
    for process in processes:
        idle.put(process)

    def one(request: IngestRequest) -> Result:
        process = idle.get()
        try:
            return process.ingest(request, project, config)
        finally:
            idle.put(process)

    with ThreadPoolExecutor(workers) as threads:
        try:
            pending = {threads.submit(one, request): request for request in requests}
            for future in as_completed(pending):
                done(pending[future], future.result())
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.end()


class _Process:
    """Ingests one slide after the other in a process that is started when it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_ended = False
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def ingest(self, request: IngestRequest, project: Project, config: IngestConfig) -> Result:
        """The report or the error; an error of its own when the process crashed."""
        try:
            connection = self._connected()
            connection.send((request, project, config))
            result: Result = connection.recv()
            return result
        except (EOFError, OSError):
            with self._lock:
                crashed, self._process = self._process, None
            if crashed:
                crashed.join()
            return UnreadableError(
                f"slide {request.slide_id}: the process that read {request.path.name} crashed or was ended"
                f"{'' if crashed is None else f' (exit code {crashed.exitcode})'}. "
                "If memory ran out, use fewer --workers; else the file is damaged: try it alone."
            )

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
                self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
                self._process.start()
                theirs.close()
            return self._connection


def _serve(connection: Connection) -> None:
    """Ingest what is asked for until nobody asks any more."""
    begin_worker()
    while True:
        try:
            request, project, config = connection.recv()
        except EOFError:
            return
        result: Result
        try:
            result = ingest_slide(request, project, config)
        except GemslideError as error:
            result = error
        connection.send(result)
