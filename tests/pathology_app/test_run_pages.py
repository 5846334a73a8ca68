"""The runs pages without a browser: their text, the runs they start and stop, and the entries in the project's log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select
from streamlit.testing.v1 import AppTest

from pathology_app.app_pages.runs import acts as run_actions
from pathology_app.jobs.commands import Command, train_command
from pathology_app.jobs.record import job_path
from pathology_app.jobs.start import running_ids
from pathology_app.jobs.state import name_of_this_process, status_of
from pathology_app.people.person import ForbiddenError, Person, Role
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pipeline.ledger.opening import find_ledger
from pipeline.ledger.rows import PROJECT_LOG
from pipeline.ledger.tables import audit
from pipeline.project import Project
from pipeline.study.proof.verify import verify_log
from tests.pathology_app.opened import hrefs, html_of, linked, open_page, visible_text
from tests.small_trained_project import make_slide, write_recipe
from training.foundation.errors import GemslideError
from training.run.event_file import EventFile

JOB = "20260102T030405Z-abcdef"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Project]:
    """Project that the pages show, empty at first."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    yield Project(tmp_path)
    close_study_ledgers()
    for job_id in running_ids(Project(tmp_path)):
        status = status_of(Project(tmp_path), job_id)
        assert status
        psutil.Process(status.job.process.pid).kill()


def texts(page: AppTest) -> str:
    kinds = ("markdown", "caption", "error", "warning", "info", "success", "code")
    return "\n".join(visible_text(element) for kind in kinds for element in page.get(kind))


def write_job(project: Project, *, exit_code: int | None, log: str = "", stopped_by: str = "") -> None:
    """Write the record of an earlier run; without an exit code the run is lost."""
    project.jobs_dir.mkdir(parents=True, exist_ok=True)
    job = {
        "version": 1, "job_id": JOB, "verb": "infer", "argv": ["infer", "--", "demo-0a1b2c3d"],
        "about": "demo-0a1b2c3d",
        "by": "Ada (web app)", "utc": "2026-01-02T03:04:05Z", "slides": 4,
        "process": {**name_of_this_process().model_dump(), "began": "1"},
    }  # fmt: skip
    job_path(project, JOB).write_text(json.dumps(job))
    job_path(project, JOB, "log").write_text(log)
    if exit_code is not None:
        ending = {"version": 1, "utc": "2026-01-02T03:06:05Z", "exit_code": exit_code, "is_stopped": bool(stopped_by)}
        job_path(project, JOB, "end.json").write_text(json.dumps(ending))
    if stopped_by:
        stop = {"version": 1, "by": stopped_by, "utc": "2026-01-02T03:06:00Z"}
        job_path(project, JOB, "stop.json").write_text(json.dumps(stop))


def line(slide_id: str, status: str, message: str = "") -> str:
    return json.dumps({"slide_id": slide_id, "status": status, "code": None, "message": message}) + "\n"


def logged(project: Project) -> list[tuple[str, str, str]]:
    """Actor, action and reason of each entry about runs in the project's log, once the log is verified."""
    ledger = find_ledger(project)
    assert ledger
    with ledger:
        assert not verify_log(ledger.database, PROJECT_LOG).findings
        with ledger.database.read() as connection:
            entries = connection.execute(select(audit).where(audit.c.subject.startswith("run ")).order_by(audit.c.seq))
            return [(entry.actor, entry.action, entry.why) for entry in entries]


def test_a_project_without_runs_says_so_and_looking_makes_nothing(served: Project) -> None:
    page = open_page()
    page.button(key="to_runs").click().run()
    assert page.query_params == {"page": ["runs"]} or page.query_params == {"page": "runs"}
    assert "There are no runs in this project yet." in texts(page)
    assert not list(served.root.iterdir())


def test_a_failed_run_says_what_became_of_each_slide(served: Project) -> None:
    log = line("S-1", "done") + line("S-2", "refused", f"{served.root}/slides/S-2 has no scale, see /mnt/scans/x.svs")
    write_job(served, exit_code=1, log=log + "warning: something\n\x1b[31mred\n┏━━━┓\n")
    page = open_page(page="runs")
    assert linked(page) == ["infer"]
    assert hrefs(page) == [f"?page=runs&run={JOB}"]
    assert "failed" in html_of(page)
    assert "exit code 1" in html_of(page)

    page = open_page(page="runs", run=JOB)
    shown, drawn = texts(page), html_of(page)
    assert "gemslide infer -- demo-0a1b2c3d" in shown
    assert "<span>Slides done</span><strong>1 of 4</strong>" in drawn
    assert "<span>Without a result</span><strong>1</strong>" in drawn
    assert 'aria-label="1 done, 1 without a result, 2 left"' in drawn
    assert "2 min" in drawn
    assert "slides/S-2 has no scale, see …/x.svs" in drawn
    assert "/mnt" not in shown + drawn
    assert str(served.root) not in shown + drawn
    assert "\x1b" not in shown
    assert "┏" not in shown


def test_who_has_stopped_a_run_is_said_and_what_is_left(served: Project) -> None:
    write_job(served, exit_code=-2, stopped_by="Bob ![x](http://evil) (web app)")
    shown = texts(open_page(page="runs", run=JOB))
    assert "by Bob ![x](http://evil) (web app)" in shown
    assert "continues an unfinished slide after its last finished batch" in shown


def test_a_run_whose_process_is_gone_is_lost_and_has_no_stop_button(served: Project) -> None:
    write_job(served, exit_code=None)
    page = open_page(page="runs", run=JOB)
    assert "its process no longer exists" in texts(page)
    assert "stop" not in [button.key for button in page.button]


def test_a_run_in_which_every_slide_was_refused_has_done_none(served: Project) -> None:
    write_job(served, exit_code=1, log="".join(line(f"S-{number}", "refused", "no scale") for number in range(4)))
    drawn = html_of(open_page(page="runs", run=JOB))
    assert "<span>Slides done</span><strong>0 of 4</strong>" in drawn
    assert "<span>Without a result</span><strong>4</strong>" in drawn


def test_a_training_that_was_stopped_says_that_it_goes_on_at_its_checkpoint(served: Project) -> None:
    write_job(served, exit_code=-2, stopped_by="Bob (web app)")
    job = json.loads(job_path(served, JOB).read_text())
    job_path(served, JOB).write_text(json.dumps({**job, "verb": "train", "argv": ["train", "--", "small.toml"]}))
    assert "it continues at the last one" in texts(open_page(page="runs", run=JOB))


@pytest.mark.parametrize("run", ["20990101T000000Z-abcdef", "../../etc", "99999999T999999Z-abcdef"])
def test_a_link_to_no_run_is_a_message_or_the_list(served: Project, run: str) -> None:
    shown = texts(open_page(page="runs", run=run))
    assert "is not in this project" in shown or "not a valid run id" in shown or "There are no runs" in shown


def test_damaged_files_are_rows_that_say_so(served: Project) -> None:
    write_job(served, exit_code=0)
    job_path(served, JOB).write_text("<script>")
    (served.runs_dir / "20260103T000000Z-123456.json").write_text("[]")
    drawn = html_of(open_page(page="runs"))
    assert drawn.count("damaged") >= 2
    assert "<script>" not in drawn
    assert "cannot be read" in texts(open_page(page="runs", run=JOB))


def test_a_training_from_the_command_line_has_curves_and_models(served: Project) -> None:
    events = EventFile(served.runs_dir / "tensorboard" / JOB)
    for step in range(6):
        events.scalar("train/loss", 1 / (step + 1), step)
    for tag, value in (("val/loss", 0.3), ("val/accuracy", 0.9), ("train/epoch_loss", 0.4)):
        events.scalar(tag, value, 5)
    events.close()
    record = {"verb": "train", "outcome": "done", "settings": {"optim": {"lr": 0.05}}, "models": {"best": "m-1"}}
    (served.runs_dir / f"{JOB}.json").write_text(json.dumps(record))
    (served.models_dir / "m-1").mkdir(parents=True)
    (served.models_dir / "m-1" / "card.md").write_text("# A model ![x](http://evil)")

    page = open_page(page="runs", run=JOB)

    drawn = html_of(page)
    assert 'alt="Loss by step. Last: training, each step 0.167; training, each epoch 0.4; validation 0.3"' in drawn
    assert "Validation by step" in drawn
    assert "0.9000" in drawn
    assert "optim.lr" in drawn
    assert "# A model ![x](http://evil)" in [code.value for code in page.code]


def sign_in(monkeypatch: pytest.MonkeyPatch, person: Person) -> None:
    for module in ("page", "run", "forms"):
        monkeypatch.setattr(f"pathology_app.app_pages.runs.{module}.current_person", lambda: person)


def test_a_run_is_started_followed_and_stopped_by_a_person_and_the_log_says_so(
    served: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = Person("ada", frozenset({Role.COORDINATOR}))
    sign_in(monkeypatch, ada)
    (served.root / "incoming").mkdir()
    names = [f"S-{number:02}.tiff" for number in range(30)]
    make_slide(served.root / "incoming" / names[0], 1)
    for name in names[1:]:
        (served.root / "incoming" / name).hardlink_to(served.root / "incoming" / names[0])
    page = open_page(page="runs")
    page.button(key="new_ingest").click().run()
    assert "gemslide ingest" not in texts(page)  # nothing is chosen yet
    page.multiselect(key="ingest_slides").set_value([f"incoming/{name}" for name in names]).run()
    assert "gemslide ingest --project=. --json --workers=1 -- incoming/S-00.tiff" in texts(page)
    assert not running_ids(served)

    next(button for button in page.button if button.label == "Start now").click().run(timeout=60)

    (job_id,) = running_ids(served)
    assert dict(page.query_params)["run"] in (job_id, [job_id])
    assert "started by ada (web app)" in texts(page)
    again = open_page(page="runs", new="train")
    next(button for button in again.button if button.label == "Start now").click().run(timeout=60)
    assert "1 run is in progress" in texts(again)
    page.button(key="stop").click().run(timeout=60)
    while running_ids(served):
        time.sleep(0.05)
    shown = texts(open_page(page="runs", run=job_id))
    assert "by ada (web app)" in shown
    assert logged(served) == [
        ("ada (web app)", "run started", ""),
        ("ada (web app)", "run started", ""),
        ("ada (web app)", "run not started", "bad_run"),
        ("ada (web app)", "run stopped", ""),
    ]


def test_a_reader_sees_no_log_and_starts_and_stops_nothing(served: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Person("rita", frozenset({Role.READER}))
    sign_in(monkeypatch, reader)
    write_job(served, exit_code=1, log="error [x]: a line of the log\nanother line")
    write_recipe(served.root / "small.toml")

    page = open_page(page="runs")
    assert not [button.key for button in page.button if (button.key or "").startswith("new_")]
    assert "a line of the log" not in "\n".join(code.value for code in open_page(page="runs", run=JOB).code)
    assert "You may not start or stop runs" in texts(open_page(page="runs", new="train"))
    with pytest.raises(ForbiddenError):
        run_actions.start(served, train_command(served, "small.toml"), reader)
    with pytest.raises(ForbiddenError):
        run_actions.stop(served, JOB, reader)
    assert find_ledger(served) is None


def test_where_the_log_cannot_be_written_nothing_runs(served: Project) -> None:
    (served.root / "gemslide.db").mkdir()
    command = Command("train", ("doctor",), ("doctor",), about="")
    with pytest.raises(GemslideError):
        run_actions.start(served, command, Person())
    assert not served.runs_dir.exists()
