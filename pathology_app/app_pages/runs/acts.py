"""Starting and stopping runs for a person: asked for the right, written into the project's log, then done."""

from __future__ import annotations

from pathology_app.access.people import Action, Person, require
from pathology_app.jobs.commands import Command
from pathology_app.jobs.start import start_job, stop_job
from pipeline.config import load_settings
from pipeline.errors import GemslideError
from pipeline.project import Project
from pipeline.study.chain import Change
from pipeline.study.opening import open_ledger
from pipeline.study.project_log import log_in_project
from training.foundation.run_record import new_run_id


def start(project: Project, command: Command, person: Person) -> str:
    """Start a run. Returns its id.

    Raises:
        ForbiddenError: the person may not. What `start_job` and the ledger raise; nothing runs then.
    """
    require(person, Action.RUN)
    max_jobs = load_settings(project.settings_path).app.max_jobs
    job_id = new_run_id()
    details = {"command": list(command.shown_argv)} | ({} if command.slides is None else {"slides": command.slides})
    _log(project, Change(person.actor, "run started", _subject(job_id), details=details))
    try:
        start_job(project, command, by=person.actor, max_jobs=max_jobs, job_id=job_id)
    except GemslideError as error:
        _log(project, Change(person.actor, "run not started", _subject(job_id), why=error.code))
        raise
    return job_id


def stop(project: Project, job_id: str, person: Person) -> None:
    """Ask for a run's end.

    Raises:
        ForbiddenError: the person may not. What `stop_job` and the ledger raise.
    """
    require(person, Action.RUN)
    stop_job(project, job_id, by=person.actor)
    _log(project, Change(person.actor, "run stopped", _subject(job_id)))


def _subject(job_id: str) -> str:
    return f"run {job_id}"


def _log(project: Project, change: Change) -> None:
    with open_ledger(project) as ledger:
        log_in_project(ledger, [change])
