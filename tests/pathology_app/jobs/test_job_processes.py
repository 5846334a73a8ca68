"""Runs as processes: they outlive the app, stop on request, leave nothing half-written, and can be resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pathology_app.jobs.commands import Command, ingest_command
from pathology_app.jobs.history import read_run
from pathology_app.jobs.job_log import log_of
from pathology_app.jobs.offers import BadRunError, SlideFolders
from pathology_app.jobs.record import job_path
from pathology_app.jobs.start import running_ids, start_job, stop_job
from pathology_app.jobs.state import JobState, JobStatus, status_of
from pipeline.project import Project
from pipeline.store.reading.reader import StoreReader
from tests.small_trained_project import TISSUE_TOML, make_slide
from tests.waiting import wait_until
from training.foundation.errors import DiskFullError

pytestmark = pytest.mark.xdist_group("jobs")
SLIDES = 40


@pytest.fixture(scope="module")
def slide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slide") / "slide.tiff"
    make_slide(path, 1)
    return path


@pytest.fixture
def project(tmp_path: Path, slide: Path) -> Iterator[Project]:
    """Slides to ingest, one at a time: seconds of work. Processes that a test leaves running are killed."""
    (tmp_path / "incoming").mkdir()
    for number in range(SLIDES):
        shutil.copy(slide, tmp_path / "incoming" / f"S-{number:02}.tiff")
    (tmp_path / "gemslide.toml").write_text(TISSUE_TOML)
    project = Project(tmp_path)
    yield project
    for job_id in running_ids(project):
        psutil.Process(known(project, job_id).job.process.pid).kill()


def command(project: Project) -> Command:
    folders = SlideFolders.of(project, ("incoming",))
    return ingest_command(folders, folders.offered())


def known(project: Project, job_id: str) -> JobStatus:
    status = status_of(project, job_id)
    assert status
    return status


def ended(project: Project, job_id: str) -> JobStatus:
    wait_until(lambda: not known(project, job_id).runs, seconds=60)
    return known(project, job_id)


def run_process(project: Project, job_id: str) -> psutil.Process:
    """Process of the run itself, below its supervisor."""
    supervisor = psutil.Process(known(project, job_id).job.process.pid)
    wait_until(supervisor.children, seconds=60)
    return supervisor.children()[0]


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_run_that_is_stopped_leaves_nothing_half_written_and_goes_on_when_started_again(project: Project) -> None:
    job_id = start_job(project, command(project), by="Ada (web app)", max_jobs=1)
    assert known(project, job_id).state is JobState.RUNNING
    with pytest.raises(BadRunError, match="1 run is in progress"):
        start_job(project, command(project), by="Bob", max_jobs=1)
    process = run_process(project, job_id)
    wait_until(lambda: log_of(project, job_id).count().states.total(), seconds=60)

    stop_job(project, job_id, by="Bob (web app)")
    assert known(project, job_id).state in (JobState.STOPPING, JobState.STOPPED)
    status = ended(project, job_id)

    assert status.state is JobState.STOPPED
    assert status.ending
    assert not status.ending.is_killed
    assert (status.job.by, status.stop and status.stop.by) == ("Ada (web app)", "Bob (web app)")
    assert is_gone(process)
    done = project.slide_ids()
    assert 0 < len(done) < SLIDES
    assert all(StoreReader(project.store_path(slide_id)).levels for slide_id in done)
    run = read_run(project, job_id)
    assert run.record
    assert run.record.outcome == "interrupted"  # the record contains the job's name
    with pytest.raises(BadRunError, match="is not running, it is stopped"):
        stop_job(project, job_id, by="Bob")

    again = start_job(project, command(project), by="Ada", max_jobs=1)
    assert ended(project, again).state is JobState.DONE
    assert len(project.slide_ids()) == SLIDES
    counted = log_of(project, again).count()
    assert counted.states["skipped"] >= len(done)
    assert counted.states.total() == SLIDES
    assert not list(project.root.rglob(".*.partial"))
    stored = (project.runs_dir / f"{again}.json").read_text() + job_path(project, again).read_text()
    assert ".tiff" not in stored + job_path(project, again, "log").read_text()


def test_a_run_outlives_the_app_and_is_found_and_killed_by_the_next(project: Project) -> None:
    app = (
        "import sys; from pathlib import Path; from pathology_app.jobs.start import start_job; "
        "from tests.pathology_app.jobs.test_job_processes import command; from pipeline.project import Project; "
        "p = Project(Path(sys.argv[1])); print(start_job(p, command(p), by='Ada', max_jobs=1, grace_s=0.2))"
    )
    done = subprocess.run(
        [sys.executable, "-c", app, str(project.root)], capture_output=True, text=True, check=True, timeout=60
    )
    job_id = done.stdout.strip()

    assert running_ids(project) == [job_id]
    process = run_process(project, job_id)
    process.suspend()  # it no longer receives signals
    stop_job(project, job_id, by="Bob")
    status = ended(project, job_id)

    assert status.state is JobState.STOPPED
    assert status.ending
    assert status.ending.is_killed
    assert status.ending.exit_code == -signal.SIGKILL
    assert is_gone(process)


def test_a_run_ends_with_its_supervisor_and_is_said_to_be_lost(project: Project) -> None:
    job_id = start_job(project, command(project), by="Ada", max_jobs=1)
    process = run_process(project, job_id)
    supervisor = psutil.Process(known(project, job_id).job.process.pid)

    supervisor.kill()

    wait_until(lambda: is_gone(process) and is_gone(supervisor), seconds=60)
    assert known(project, job_id).state is JobState.LOST
    assert running_ids(project) == []
    # No zombie remains, because the app waits for it.
    wait_until(lambda: not psutil.pid_exists(supervisor.pid), seconds=60)


def test_a_module_in_the_projects_folder_is_not_run(project: Project) -> None:
    for name in ("pipeline", "typer", "json", "pathology_app"):
        (project.root / f"{name}.py").write_text(f"open({str(project.root / 'ran')!r}, 'w')")
    argv = ("info", "--project=.", "--json", "--", "nothing")
    job_id = start_job(project, Command("ingest", argv, argv, about=""), by="Ada", max_jobs=1)
    assert ended(project, job_id).state is JobState.FAILED
    assert '"code": "unreadable"' in job_path(project, job_id, "log").read_text()
    assert not (project.root / "ran").exists()
    assert os.stat(job_path(project, job_id, "log")).st_mode & 0o777 == 0o600
    assert json.loads(job_path(project, job_id, "end.json").read_text())["exit_code"] == 1


def test_where_nothing_can_be_written_nothing_runs(project: Project) -> None:
    project.runs_dir.mkdir()
    project.jobs_dir.touch()
    with pytest.raises(DiskFullError, match="runs/jobs"):
        start_job(project, command(project), by="Ada", max_jobs=1)


def test_no_run_is_started_where_the_project_says_so(project: Project) -> None:
    with pytest.raises(BadRunError, match="starts no runs"):
        start_job(project, command(project), by="Ada", max_jobs=0)
    assert not list(project.jobs_dir.iterdir())
