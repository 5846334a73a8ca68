"""Starting and stopping jobs: only so many at once, and each is recorded before anything runs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pathology_app.jobs.commands import Command
from pathology_app.jobs.offers import BadRunError
from pathology_app.jobs.record import Stop, job_path, utc_now, write_record
from pathology_app.jobs.sources import check_sources
from pathology_app.jobs.state import SUPERVISOR, status_of
from pathology_app.jobs.supervisor import GRACE_S, JobRequest
from pipeline.errors import BY_CODE, ProcessFailedError
from pipeline.project import Project
from training.foundation.errors import GemslideError, LockedError, UnreadableError
from training.foundation.locks import try_lock
from training.foundation.publish import explain_unwritable
from training.foundation.run_record import is_run_id, new_run_id
from training.foundation.words.counts import counted

ANSWER_S = 30.0
_LOCK_S = 10.0
_POLL_S = 0.05


def start_job(
    project: Project, command: Command, *, by: str, max_jobs: int, job_id: str | None = None, grace_s: float = GRACE_S
) -> str:
    """Start a run that outlives the app. Returns its id.

    Args:
        by: who starts it.
        max_jobs: how many may run at once. Further ones are refused, not queued: a run that begins hours later, when
            nobody is watching any more, helps nobody.
        job_id: its id; None: a new one.
        grace_s: from the request to stop it until it is killed.

    Raises:
        OutsideFoldersError: it would read files outside the project and the installation's folders.
        BadRunError: that many run already. LockedError: somebody else is starting one. DiskFullError: no room.
        ProcessFailedError: it could not be started.
    """
    job_id = job_id or new_run_id()
    within = check_sources(project, command)
    with _alone(project):
        _check_room(project, max_jobs)
        _run_supervisor(
            JobRequest(
                project=project.root.resolve(),
                job_id=job_id,
                verb=command.verb,
                argv=command.argv,
                shown_argv=command.shown_argv,
                about=command.about,
                by=by,
                slides=command.slides,
                hidden=command.hidden,
                kept=command.kept,
                grace_s=grace_s,
                within=within,
            )
        )
    return job_id


def stop_job(project: Project, job_id: str, *, by: str) -> None:
    """Ask a run to end, as Ctrl+C would: its supervisor notices within a moment.

    Raises:
        BadRunError: it is not running. UnreadableError: its record is damaged. DiskFullError: no room for the request.
    """
    status = status_of(project, job_id)
    if status is None or not status.runs:
        raise BadRunError(f"run {job_id}: is not running{'' if status is None else f', it is {status.state}'}.")
    if status.stop is None:
        write_record(job_path(project, job_id, "stop.json"), Stop(by=by, utc=utc_now()))


def running_ids(project: Project) -> list[str]:
    """Jobs that have not ended, oldest first. Those whose records are damaged are left out."""
    try:
        names = set(os.listdir(project.jobs_dir))
    except OSError:
        return []
    ids = sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [
        job_id for job_id in ids if is_run_id(job_id) and f"{job_id}.end.json" not in names and _runs(project, job_id)
    ]


def _runs(project: Project, job_id: str) -> bool:
    try:
        status = status_of(project, job_id)
    except UnreadableError:
        return False
    return status is not None and status.runs


def _check_room(project: Project, max_jobs: int) -> None:
    if max_jobs == 0:
        raise BadRunError("this project's app starts no runs: `[app] max_jobs` in gemslide.toml is 0.")
    running = running_ids(project)
    if len(running) >= max_jobs:
        raise BadRunError(
            f"{counted(len(running), 'run is', 'runs are')} in progress ({', '.join(running)}), and "
            f"`[app] max_jobs` = {max_jobs} allows no more. Wait for one to end, or stop one."
        )


@contextmanager
def _alone(project: Project) -> Iterator[None]:
    """Lock against other starts, in all processes of the app: two at the same moment must not both find room."""
    with explain_unwritable(project.jobs_dir):
        project.jobs_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(project.jobs_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        give_up = time.monotonic() + _LOCK_S
        while not try_lock(descriptor):
            if time.monotonic() > give_up:
                raise LockedError("runs/jobs: somebody else is starting a run. Try again.")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _run_supervisor(order: JobRequest) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", SUPERVISOR, order.job_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    # Reaped when it ends; if the app ends first, the system does that.
    threading.Thread(target=process.wait, name=f"job {order.job_id}", daemon=True).start()
    assert process.stdin
    assert process.stdout
    with process.stdin as request, process.stdout as reply:
        try:
            request.write(order.model_dump_json().encode())
            request.close()
            has_replied = bool(select.select([reply], [], [], ANSWER_S)[0])
            line = reply.readline() if has_replied else b""
        except BrokenPipeError:
            line = b""
    if not line:
        process.kill()
        raise ProcessFailedError(
            f"the run could not be started: `python -m {SUPERVISOR}` did not answer. Its output is where the app was "
            "started."
        )
    answer = json.loads(line)
    if answer["code"]:
        kind: type[GemslideError] = BY_CODE.get(answer["code"], ProcessFailedError)
        raise kind(answer["message"])
