"""Task of a Dask worker for a study: it starts one study worker, and ends it when it is no longer needed.

The study worker is a separate process. The process that computes is the one that sends heartbeats, and unlike a
thread it can be ended at any time; the Dask worker's event loop stays free, and its limits on its own memory do not
count slides. Anything that ends the Dask worker, even `kill -9`, also ends the study worker, by a signal on which it
returns its task.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from distributed import Status, Worker, WorkerPlugin, get_worker

from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.starting.local_pool import end_processes, worker_command
from pipeline.study.starting.start_request import LOGS_DIR, StartRequest
from pipeline.study.work.owner import machine_id
from training.foundation.errors import BadRecipeError, UnreadableError

_POLL_S = 0.2
_SAID_BYTES = 2000
_live: dict[str, int] = {}
"""Study workers of this Dask worker's process, by the run that requested them."""


@dataclass(frozen=True)
class WorkerEnd:
    """End of a study worker."""

    host: str
    code: int
    seconds: float
    said: str
    """The end of its log."""
    log: str


class IgnoreCtrlC(WorkerPlugin):
    """For Dask workers in the starter's terminal, where Ctrl+C reaches every process: the starter ends them."""

    def setup(self, worker: Worker) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def be_study_worker(order: StartRequest) -> WorkerEnd:
    """Start a study worker and wait until it ends, or until Dask no longer wants this task.

    Raises:
        BadRecipeError: this machine cannot reach the ledger. UnreadableError: the project is not here.
    """
    _check_reach(order)
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(order.threads)} if order.threads else {})}
    command = worker_command(order.study_id, order.project, order.devices, parent=os.getpid())
    began = time.monotonic()
    _live[order.run_id] = _live.get(order.run_id, 0) + 1
    try:
        with _log(order) as log:
            # A separate session: Ctrl+C in the terminal of a Dask worker is for Dask to handle.
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            _wait(process)
            last_line = _end_of(Path(log.name))
    finally:
        _live[order.run_id] -= 1
    return WorkerEnd(socket.gethostname(), process.returncode, time.monotonic() - began, last_line, log.name)


def count_live(run_id: str) -> int:
    """Number of live study workers of a run in this Dask worker."""
    return _live.get(run_id, 0)


def _check_reach(order: StartRequest) -> None:
    host = socket.gethostname()
    if order.has_ledger_variable and not os.environ.get(LEDGER_VARIABLE):
        raise BadRecipeError(
            f"{LEDGER_VARIABLE} is not set on {host}, where a Dask worker is to work on study {order.study_id}; it is "
            "set where the study was started. Export it in the environment of the Dask workers: it is not sent to "
            "them, since it may hold a password."
        )
    if order.machine and order.machine != machine_id():
        raise BadRecipeError(
            f"the ledger of study {order.study_id} is a SQLite file on a different machine from {host}, where a Dask "
            "worker is to work on it. Use PostgreSQL for workers on several machines (docs/how_to/operating.md)."
        )
    if not Path(order.folder).is_dir():
        raise UnreadableError(
            f"{order.folder}: not on {host}, where a Dask worker is to work on study {order.study_id}. Make the "
            "project available under the same path on all machines."
        )


def _log(order: StartRequest) -> tempfile._TemporaryFileWrapper[bytes]:
    folder = Path(order.folder) / LOGS_DIR
    folder.mkdir(exist_ok=True)
    return tempfile.NamedTemporaryFile(dir=folder, prefix=f"dask-{socket.gethostname()}-", suffix=".log", delete=False)


def _wait(process: subprocess.Popen[bytes]) -> None:
    worker, key = get_worker(), get_worker().get_current_task()
    try:
        while process.poll() is None and _is_wanted(worker, key):
            time.sleep(_POLL_S)
    finally:
        end_processes([process])


def _is_wanted(worker: Worker, key: object) -> bool:
    """Whether the task was not cancelled, the client that requested it is there, and the Dask worker is not closing."""
    task = worker.state.tasks.get(key)  # type: ignore[call-overload]
    is_closing = worker.status in (Status.closing, Status.closed, Status.failed)
    return task is not None and task.state != "cancelled" and not is_closing


def _end_of(log: Path) -> str:
    text = log.read_bytes()[-_SAID_BYTES:].decode(errors="replace").strip()
    return text.splitlines()[-1] if text else "it printed nothing"
