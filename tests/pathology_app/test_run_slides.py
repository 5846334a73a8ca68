"""The slides of a run and their actions, without a browser: where a slide's file is, and when it may be tried again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pathology_app.app_pages.runs.rows import PARTIAL, state_of
from pathology_app.app_pages.runs.slide_rows import TRY_AGAIN, slides_html
from pathology_app.jobs.commands import ingest_again_command
from pathology_app.jobs.history import read_run
from pathology_app.jobs.job_log import SlideEnd
from pathology_app.jobs.offers import BadRunError, SlideFolders, SlideSource, default_recipe, recipes
from pathology_app.jobs.progress import progress_of
from pathology_app.jobs.record import job_path
from pathology_app.jobs.slides import slides_of
from pathology_app.jobs.state import name_of_this_process
from pathology_app.links.runs import RunLink
from pathology_app.project.served import PROJECT_VARIABLE
from pipeline.project import Project
from tests.pathology_app.opened import open_page, visible_text

JOB = "20260102T030405Z-abcdef"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Project with slide files, of which two would become the same slide, and a manifest."""
    root = tmp_path / "project"
    (root / "incoming" / "old").mkdir(parents=True)
    for name in ("S-1.svs", "S-2.svs", "old/S-2.svs", "x.svs"):
        (root / "incoming" / name).touch()
    (root / "incoming" / "cohort.csv").write_text(
        "path,slide_id,series,exclude\nx.svs,S-9,2,\nS-1.svs,S-1,,\nx.svs,S-8,,yes\n../../y.svs,S-7,,\n"
    )
    (tmp_path / "y.svs").touch()
    return Project(root)


@pytest.fixture
def folders(project: Project) -> SlideFolders:
    return SlideFolders.of(project, ("incoming",))


def test_a_slides_file_is_found_by_its_name_and_in_manifests_once(folders: SlideFolders) -> None:
    (source,) = folders.sources_of("S-1")
    assert (source.name, source.typed, source.series) == ("incoming/S-1.svs", "incoming/S-1.svs", None)
    (listed,) = folders.sources_of("S-9")
    assert (listed.name, listed.typed, listed.series) == ("x.svs in incoming/cohort.csv", "incoming/x.svs", "2")


def test_two_files_of_one_name_are_both_offered_and_no_part_of_a_name_counts(folders: SlideFolders) -> None:
    assert [source.name for source in folders.sources_of("S-2")] == ["incoming/S-2.svs", "incoming/old/S-2.svs"]
    assert folders.sources_of("S") == folders.sources_of("s-1") == []


@pytest.mark.parametrize("slide_id", ["S-8", "S-7", "S-404"])
def test_a_file_that_is_excluded_or_outside_the_folders_is_not_found(folders: SlideFolders, slide_id: str) -> None:
    assert folders.sources_of(slide_id) == []


def test_the_command_names_the_slide_and_its_scale_and_no_file_in_its_record(folders: SlideFolders) -> None:
    (source,) = folders.sources_of("S-9")
    command = ingest_again_command(source, "S-9", 0.2525)
    options = ("ingest", "--project=.", "--json", "--workers=1", "--slide-id=S-9", "--mpp=0.2525")
    assert command.argv == (*options, "--series=2", "--", "incoming/x.svs")
    assert "x.svs" not in " ".join(command.shown_argv)
    assert "=2" not in " ".join(command.shown_argv[len(options) :])
    assert (command.hidden, command.kept, command.slides) == ((source.path,), ("S-9",), 1)


@pytest.mark.parametrize(("slide_id", "mpp"), [("../x", 0.25), ("S-9", 0.0), ("S-9", 40000.0), ("S-9", float("nan"))])
def test_an_invalid_id_or_scale_starts_nothing(slide_id: str, mpp: float) -> None:
    with pytest.raises(BadRunError):
        ingest_again_command(SlideSource("x", Path("x"), "x"), slide_id, mpp)


def write_job(project: Project, ends: dict[str, str], *, exit_code: int | None, slides: int = 4) -> None:
    """Write the record and the log of an ingest that has ended, or was lost."""
    project.jobs_dir.mkdir(parents=True, exist_ok=True)
    job = {
        "version": 1, "job_id": JOB, "verb": "ingest", "argv": ["ingest"], "about": f"{slides} slides", "by": "ada",
        "utc": "2026-01-02T03:04:05Z", "slides": slides, "slide_ids": ["S-1", "S-2", "S-3", "S-4"],
        "process": {**name_of_this_process().model_dump(), "began": "1"},
    }  # fmt: skip
    job_path(project, JOB).write_text(json.dumps(job))
    lines = [
        {"slide_id": slide_id, "status": "done" if code == "" else "refused", "code": code or None, "message": "m" * 9}
        for slide_id, code in ends.items()
    ]
    job_path(project, JOB, "log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if exit_code is not None:
        ending = {"version": 1, "utc": "2026-01-02T03:06:05Z", "exit_code": exit_code}
        job_path(project, JOB, "end.json").write_text(json.dumps(ending))


@pytest.mark.parametrize(
    ("ends", "exit_code", "expected"),
    [
        ({"S-1": "", "S-2": "", "S-3": "missing_mpp", "S-4": "unreadable"}, 1, (PARTIAL, "2 of 4 done")),
        ({"S-1": "", "S-2": "missing_mpp"}, 1, (PARTIAL, "1 of 4 done")),
        ({"S-1": "missing_mpp", "S-2": "missing_mpp"}, 1, ("failed", "failed")),
        ({"S-1": "", "S-2": "", "S-3": "", "S-4": ""}, 0, ("done", "done")),
        ({"S-1": ""}, None, ("lost", "lost")),
    ],
)
def test_a_run_with_some_results_is_neither_done_nor_failed(
    project: Project, ends: dict[str, str], exit_code: int | None, expected: tuple[str, str]
) -> None:
    write_job(project, ends, exit_code=exit_code)
    run = read_run(project, JOB)
    assert state_of(run, progress_of(project, run)) == expected


def test_each_slide_has_one_line_those_without_a_result_first(project: Project) -> None:
    write_job(project, {"S-2": "", "S-3": "missing_mpp"}, exit_code=1, slides=6)
    run = read_run(project, JOB)
    listed = slides_of(project, run, progress_of(project, run))
    assert [(end.slide_id, end.state) for end in listed.ends] == [
        ("S-3", "refused"), ("S-1", "not started"), ("S-4", "not started"), ("S-2", "done"),
    ]  # fmt: skip
    assert listed.unlisted == 2


def test_only_a_missing_scale_is_tried_again_and_only_by_those_who_may(project: Project) -> None:
    write_job(project, {}, exit_code=1)
    run = read_run(project, JOB)
    ends = [SlideEnd("S-1", "refused", "missing_mpp"), SlideEnd("S-2", "unreadable", "unreadable", "cut off")]
    assert slides_html(run, ends, (), project.root, may_start=True).count(TRY_AGAIN) == 1
    assert TRY_AGAIN not in slides_html(run, ends, (), project.root, may_start=False)
    since = slides_html(run, ends, ("S-1",), project.root, may_start=True)
    assert TRY_AGAIN not in since
    assert "Ingested since" in since
    assert 'href="?slide=S-1"' in since


@pytest.mark.parametrize("again", ["../x", "S-404", "S-2", "<b>"])
def test_a_link_to_another_slide_draws_no_form(project: Project, monkeypatch: pytest.MonkeyPatch, again: str) -> None:
    write_job(project, {"S-1": "missing_mpp", "S-2": ""}, exit_code=1)
    monkeypatch.setenv(PROJECT_VARIABLE, str(project.root))
    page = open_page(page="runs", run=JOB, again=again)
    assert "µm per pixel" not in [field.label for field in page.number_input]


def test_a_file_that_is_gone_is_explained(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(project, {"S-4": "missing_mpp"}, exit_code=1)
    monkeypatch.setenv(PROJECT_VARIABLE, str(project.root))
    page = open_page(**RunLink(JOB, again="S-4").query())
    (warning,) = page.warning
    assert "The file of S-4 is not in the folders" in visible_text(warning)


def test_of_two_files_the_person_chooses_one(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(project, {"S-2": "missing_mpp"}, exit_code=1)
    monkeypatch.setenv(PROJECT_VARIABLE, str(project.root))
    page = open_page(**RunLink(JOB, again="S-2").query())
    assert page.selectbox(key="again_source").value is None
    page.number_input(key="again_mpp S-2").set_value(0.25)
    next(button for button in page.button if button.label == "Try again").click().run()
    assert "Choose the file first." in [error.value for error in page.error]
    assert not list(project.runs_dir.glob("*.json"))


def test_the_first_recipe_is_one_whose_tiles_the_project_has(project: Project) -> None:
    offered = list(recipes(project))
    assert default_recipe(project, offered) is None
    project.tile_table_path("demo").parent.mkdir()
    project.tile_table_path("demo").touch()
    assert default_recipe(project, offered) == "demo.toml (shipped)"


@pytest.mark.parametrize(
    ("page", "is_known"), [("nosuch", False), ("2", True), ("-1", False), ("<b>", False), ("", True)]
)
def test_a_link_to_no_page_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch, page: str, is_known: bool
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(project.root))
    shown = "\n".join(visible_text(warning) for warning in open_page(page=page).warning)
    assert shown == (
        "" if is_known else f"This app has no page named “{page}”. Check the link, or go on from the worklist."
    )
