"""Job records that are damaged, forged, or from before the computer was restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pathology_app.jobs.history import list_runs, read_run, run_ids
from pathology_app.jobs.offers import BadRunError
from pathology_app.jobs.record import job_path
from pathology_app.jobs.start import running_ids, stop_job
from pathology_app.jobs.state import SILENT_S, SUPERVISOR, JobState, name_of_this_process, status_of
from pipeline.project import Project
from training.foundation.errors import UnreadableError

JOB = "20260102T030405Z-abcdef"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "runs" / "jobs").mkdir(parents=True)
    return Project(tmp_path)


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """Process unrelated to any run; it ends when it receives a line."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield psutil.Process(process.pid)
        assert process.poll() is None, "somebody has ended it"
        process.communicate(b"\n")


def record(**changes: Any) -> dict[str, Any]:
    process = name_of_this_process().model_dump()
    whole = {
        "version": 1, "job_id": JOB, "verb": "ingest", "argv": ["ingest"], "about": "1 slide", "by": "Ada",
        "utc": "2026-01-02T03:04:05Z", "slides": 1, "process": process,
    }  # fmt: skip
    return {**whole, **changes}


def write(project: Project, content: object, kind: str = "json") -> Path:
    path = job_path(project, JOB, kind)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def began(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def test_a_strangers_process_is_never_taken_for_a_run(project: Project, stranger: psutil.Process) -> None:
    own = name_of_this_process()
    for pid, since in (
        (stranger.pid, began(stranger.pid)), (os.getpid(), own.began), (stranger.pid, "1"), (1 << 22, "1"),
    ):  # fmt: skip
        write(project, record(process={"space": own.space, "pid": pid, "began": since}))
        status = status_of(project, JOB)
        assert status
        assert status.state is JobState.LOST
        assert running_ids(project) == []
        with pytest.raises(BadRunError, match="is not running"):
            stop_job(project, JOB, by="Ada")


def test_a_reused_number_or_a_process_of_somebody_else_is_no_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It even claims to supervise this job, but only once Python runs there instead of the fork of this test.
    code = [sys.executable, "-c", "print(flush=True); input()", SUPERVISOR, JOB]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        name = {"space": name_of_this_process().space, "pid": process.pid, "began": began(process.pid)}
        write(project, record(process=name))
        assert running_ids(project) == [JOB]
        write(project, record(process={**name, "began": str(int(name["began"]) - 1)}))
        assert running_ids(project) == []
        write(project, record(process=name))
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        assert running_ids(project) == []
        process.communicate(b"\n")


def test_a_run_from_before_the_computer_was_started_again_is_lost(project: Project) -> None:
    path = write(project, record(process={"space": "another-boot", "pid": 77, "began": "5"}))
    assert running_ids(project) == [JOB]  # it may run on another computer, because its record was touched just now
    long_ago = path.stat().st_mtime - 2 * SILENT_S
    os.utime(path, (long_ago, long_ago))
    status = status_of(project, JOB)
    assert status
    assert status.state is JobState.LOST


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "nonsense", "{}", "[" * 100_000, json.dumps(record(version=2)), json.dumps(record(verb="rm")),
        json.dumps(record(utc="yesterday")), json.dumps(record(utc="2026-99-99T00:00:00Z")),
        json.dumps(record(process={"space": "x", "pid": -1, "began": "1"})), json.dumps(record(slides=-5)),
        json.dumps(record(argv=["x"] * 5000)), json.dumps(record(by="x" * 10_000)),
        json.dumps(record(job_id="20260102T030405Z-000000")),
    ],
    ids=range(14),
)  # fmt: skip
def test_a_damaged_record_is_a_row_that_says_so_and_nothing_is_done_with_it(project: Project, content: str) -> None:
    write(project, content)
    with pytest.raises(UnreadableError, match=JOB):
        status_of(project, JOB)
    (run,) = list_runs(project, run_ids(project))
    assert run.state == "damaged"
    assert JOB in run.damage
    assert running_ids(project) == []


@pytest.mark.parametrize("kind", ["end.json", "stop.json"])
def test_a_damaged_ending_is_said(project: Project, kind: str) -> None:
    write(project, record())
    write(project, '{"version": 1, "exit_code": "x"}', kind)
    assert read_run(project, JOB).state == "damaged"


def test_how_it_ended_is_told_by_its_ending(project: Project) -> None:
    write(project, record())
    ending = {"version": 1, "utc": "2026-01-02T03:05:05Z", "exit_code": 0}
    for changes, state in (
        ({}, JobState.DONE),
        ({"exit_code": 1}, JobState.FAILED),
        ({"exit_code": -9, "is_stopped": True}, JobState.STOPPED),
        ({"is_stopped": True}, JobState.DONE),  # it finished before the signal arrived
    ):
        write(project, ending | changes, "end.json")
        run = read_run(project, JOB)
        assert run.state == state
        assert run.seconds == 60


@pytest.mark.parametrize("name", ["", "..", "../x", JOB + "\n", JOB.upper(), "99999999T999999Z-abcdef", "x" * 300])
def test_no_other_name_is_a_runs(project: Project, name: str) -> None:
    with pytest.raises(UnreadableError):
        read_run(project, name)


def test_runs_are_listed_newest_first_with_and_without_a_job(project: Project) -> None:
    write(project, record())
    later = "20260103T000000Z-123456"
    slides = [{"slide_id": "S-1", "status": "done"}, {"slide_id": "S-2", "status": "refused"}]
    run_record = {
        "verb": "infer",
        "outcome": "failed",
        "slides": slides,
        "settings": {"model": "m"},
        "seconds": {"infer": 3},
    }
    (project.runs_dir / f"{later}.json").write_text(json.dumps(run_record))
    for name in ("notes.json", "99999999T999999Z-abcdef.json", f".{later}.json.w1.partial"):
        (project.runs_dir / name).write_text("{}")

    assert run_ids(project) == [later, JOB]
    run = read_run(project, later)
    assert (run.verb, run.about, run.state, run.seconds) == ("infer", "m", "failed", 3)
    assert run.record
    assert run.record.slides == {"done": 1, "refused": 1}


@pytest.mark.parametrize(
    "content", ["", "[]", '{"slides": 5, "settings": [], "seconds": "x", "models": 1, "verb": {}}'], ids=range(3)
)
def test_a_damaged_run_record_hides_no_other(project: Project, content: str) -> None:
    (project.runs_dir / f"{JOB}.json").write_text(content)
    assert len(list_runs(project, run_ids(project))) == 1
