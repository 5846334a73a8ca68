"""Records of a job: `runs/jobs/<job_id>.json` when it starts, `.stop.json` when somebody stops it, `.end.json` when it
has ended, and its log. Each has one writer; any of them may be damaged or forged, and is checked when it is read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pipeline.project import Project
from training.foundation.errors import UnreadableError
from training.foundation.publish import write_text_atomic
from training.foundation.reading import read_json_file
from training.foundation.run_record import is_run_id
from training.foundation.words.counts import counted

MAX_RECORD_BYTES = 2**20
MAX_ARGUMENTS = 1000
MAX_SLIDE_IDS = 500
"""Slides that a record names; a run may have more."""
_Text = Annotated[str, Field(max_length=4096)]
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def time_of(utc: str) -> datetime:
    """A time from a record. Raises ValueError: it is not one."""
    return datetime.strptime(utc, _TIME).replace(tzinfo=UTC)


def _checked_time(utc: str) -> str:
    time_of(utc)
    return utc


_Time = Annotated[str, Field(max_length=20), AfterValidator(_checked_time)]
Verb = Literal["ingest", "train", "infer", "study begin", "study run"]


class _Record(BaseModel):
    """Base of all records. Later versions may add keys; those here keep their meaning."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    version: Literal[1] = 1


class ProcessName(BaseModel):
    """A process: its id, the boot and the namespace in which that is valid, and its start time."""

    model_config = ConfigDict(frozen=True)

    space: _Text
    pid: int = Field(gt=1, lt=2**31)
    began: _Text


class Job(_Record):
    """A run that was started.

    Attributes:
        argv: the command line after `gemslide`; slide files are left out, since their names can identify patients.
        about: the model, recipe or study.
        by: who started it.
        slides: number of slides to process; None where unknown.
        slide_ids: the first of them, in the run's order; empty where unknown.
        process: the supervisor, which lives as long as the run.
    """

    job_id: str
    verb: Verb
    argv: Annotated[tuple[_Text, ...], Field(max_length=MAX_ARGUMENTS)]
    about: _Text
    by: _Text
    utc: _Time
    slides: int | None = Field(None, ge=0, le=10**9)
    slide_ids: Annotated[tuple[_Text, ...], Field(max_length=MAX_SLIDE_IDS)] = ()
    process: ProcessName


class Stop(_Record):
    """A request to stop a job."""

    by: _Text
    utc: _Time


class Ending(_Record):
    """End of a job.

    Attributes:
        exit_code: below zero: the signal that ended it.
        is_stopped: whether somebody, or the system, asked it to end.
        is_killed: whether it was asked to end, did not in time, and was killed.
    """

    utc: _Time
    exit_code: int = Field(ge=-1024, le=1024)
    is_stopped: bool = False
    is_killed: bool = False


R = TypeVar("R", bound=_Record)


def utc_now() -> str:
    """The current time, as written in records."""
    return datetime.now(UTC).strftime(_TIME)


def job_path(project: Project, job_id: str, kind: str = "json") -> Path:
    """A file of a job: "json", "stop.json", "end.json" or "log".

    Raises:
        UnreadableError: not a valid job id.
    """
    if not is_run_id(job_id):
        raise UnreadableError(f"run {job_id!r:.100}: not a valid run id. The runs page lists all runs.")
    return project.jobs_dir / f"{job_id}.{kind}"


def read_job(project: Project, job_id: str) -> Job | None:
    """The record of a job; None where there is none.

    Raises:
        UnreadableError: it is damaged, or another job's.
    """
    job = _read(Job, job_path(project, job_id))
    if job is not None and job.job_id != job_id:
        raise UnreadableError(f"runs/jobs/{job_id}.json: is the record of {job.job_id!r:.100}. It has been moved.")
    return job


def read_stop(project: Project, job_id: str) -> Stop | None:
    """Request to stop the job; None where nobody has made one. Raises: as `read_job`."""
    return _read(Stop, job_path(project, job_id, "stop.json"))


def read_ending(project: Project, job_id: str) -> Ending | None:
    """End of the job; None where it has not ended. Raises: as `read_job`."""
    return _read(Ending, job_path(project, job_id, "end.json"))


def write_record(path: Path, record: BaseModel) -> None:
    """Publish a record. Raises DiskFullError: no space, or not writable."""
    write_text_atomic(path, record.model_dump_json(indent=1) + "\n")


def _read(kind: type[R], path: Path) -> R | None:
    where = f"runs/jobs/{path.name}"
    try:
        return kind.model_validate(read_json_file(path, max_bytes=MAX_RECORD_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError, ValueError) as error:
        reason = (
            f"{counted(error.error_count(), 'value is', 'values are')} invalid"
            if isinstance(error, ValidationError)
            else str(error)
        )
        raise UnreadableError(f"{where}: cannot be read: {reason:.300}. That run is left alone.") from error
