"""Start and stop runs for a person: check the right, write the project's log, then act."""

from __future__ import annotations

from pathology_app.jobs.commands import Command
from pathology_app.jobs.start import start_job, stop_job
from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import ForbiddenError, Person
from pipeline.ledger.chain import Change
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.project_log import log_in_project
from pipeline.project import Project
from pipeline.settings.config import load_settings
from training.foundation.errors import GemslideError
from training.foundation.run_record import new_run_id


def start(project: Project, command: Command, person: Person) -> str:
    """Start a run. Returns its id.

    Raises:
        ForbiddenError: the person may not. Also as `start_job` and the ledger; nothing runs then.
    """
    _check(person, Act.START_RUN)
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
    """Request the stop of a run.

    Raises:
        ForbiddenError: the person may not. Also as `stop_job` and the ledger.
    """
    _check(person, Act.STOP_RUN)
    stop_job(project, job_id, by=person.actor)
    _log(project, Change(person.actor, "run stopped", _subject(job_id)))


def _check(person: Person, act: Act) -> None:
    """Check that a person may start and stop runs, which cover all slides of the project. Raises: ForbiddenError."""
    check_act(person, act)
    if person.slides is not None:
        raise ForbiddenError("Runs cover all slides of the project, and you may see only some of them.")


def _subject(job_id: str) -> str:
    return f"run {job_id}"


def _log(project: Project, change: Change) -> None:
    with open_ledger(project) as ledger:
        log_in_project(ledger, [change])
