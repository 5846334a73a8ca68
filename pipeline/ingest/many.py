"""Many slides at a time, each in a process of its own: a decoder that crashes takes one slide with it, not the run."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from queue import SimpleQueue

from pipeline.config import IngestConfig
from pipeline.errors import GemslideError, UnreadableError
from pipeline.ingest.ingest import IngestReport, IngestRequest, ingest_slide
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

    Args:
        done: called in this thread for every slide as it ends, with what became of it.
    """
    idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
    for _ in range(workers):
        idle.put(_new_process())

    def one(request: IngestRequest) -> Result:
        process = idle.get()
        try:
            return process.submit(ingest_slide, request, project, config).result()
        except GemslideError as error:
            return error
        except BrokenProcessPool:
            process.shutdown()
            process = _new_process()
            return UnreadableError(
                f"slide {request.slide_id}: the process that read {request.path.name} crashed or was ended. "
                "If memory ran out, use fewer --workers; else the file is damaged: try it alone."
            )
        finally:
            idle.put(process)

    try:
        with ThreadPoolExecutor(workers) as threads:
            pending = {threads.submit(one, request): request for request in requests}
            for future in as_completed(pending):
                done(pending[future], future.result())
    finally:
        for _ in range(workers):
            idle.get().shutdown()


def _new_process() -> ProcessPoolExecutor:
    """Spawned, not forked: this process has threads."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
