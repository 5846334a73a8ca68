"""State of a job, from its records and from whether its process is alive. Nothing here sends a signal."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import StrEnum

import psutil

from pathology_app.jobs.record import Ending, Job, ProcessName, Stop, job_path, read_ending, read_job, read_stop
from pipeline.project import Project
from pipeline.study.work.owner import Owner, this_process

SUPERVISOR = "pathology_app.jobs.supervisor"
HEARTBEAT_S = 10.0
SILENT_S = 90.0
"""A job on another computer or in another container that has not touched its record for this long is lost."""


class JobState(StrEnum):
    """State of a job."""

    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True)
class JobStatus:
    """A job and its state."""

    job: Job
    state: JobState
    ending: Ending | None = None
    stop: Stop | None = None

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.state in (JobState.RUNNING, JobState.STOPPING)


def status_of(project: Project, job_id: str) -> JobStatus | None:
    """State of a job; None where there is none.

    Raises:
        UnreadableError: one of its records is damaged.
    """
    job = read_job(project, job_id)
    if job is None:
        return None
    lives = _lives(project, job)  # before the ending is read: the job may end in between
    ending, stop = read_ending(project, job_id), read_stop(project, job_id)
    return JobStatus(job, _state(lives, ending, stop), ending, stop)


def _state(lives: bool, ending: Ending | None, stop: Stop | None) -> JobState:
    if ending is None:
        if not lives:
            return JobState.LOST
        return JobState.STOPPING if stop else JobState.RUNNING
    if ending.exit_code == 0:
        return JobState.DONE
    return JobState.STOPPED if ending.is_stopped else JobState.FAILED


def name_of_this_process() -> ProcessName:
    """This process, as in a job's record."""
    own = this_process()
    return ProcessName(space=own.space, pid=own.pid, began=own.began)


def _lives(project: Project, job: Job) -> bool:
    here, process = this_process(), job.process
    if process.space != here.space:
        return _is_fresh(project, job)
    if Owner(here.host, process.space, process.pid, process.began).is_gone():
        return False
    return _is_supervisor(process.pid, job.job_id)


def _is_supervisor(pid: int, job_id: str) -> bool:
    """Whether a process of this computer is ours and is the supervisor of this job."""
    try:
        process = psutil.Process(pid)
        argv = process.cmdline()
        return process.uids().real == os.getuid() and SUPERVISOR in argv and argv[-1] == job_id
    except psutil.Error:
        return False


def _is_fresh(project: Project, job: Job) -> bool:
    try:
        touched = job_path(project, job.job_id).stat().st_mtime
    except OSError:
        return False
    return abs(time.time() - touched) < SILENT_S
