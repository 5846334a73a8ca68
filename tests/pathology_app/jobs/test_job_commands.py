"""Command lines of runs: nothing that is typed, named or sent becomes an option, a path elsewhere or a shell's word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pathology_app.jobs.commands import infer_command, ingest_command, study_command, train_command
from pathology_app.jobs.offers import SLIDES_VARIABLE, BadRunError, SlideFolders, check_slide_folders, recipes
from pipeline.cli import cli
from pipeline.config import load_settings
from pipeline.errors import BadManifestError, BadRecipeError
from pipeline.project import Project

HOSTILE = (
    "--help", "-x", "--project=/etc", "; rm -rf /", "$(id)", "`id`", "a b", "../..", "/etc/passwd", "a\nb", "a\0b", "",
    ".", "..", "incoming/../../etc/passwd", "incoming//etc/passwd", "incoming", "💥", "x" * 5000,
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Slides with awkward names, a model, a recipe and two slides in the project."""
    incoming = tmp_path / "project" / "incoming"
    (incoming / "deep" / "dicom").mkdir(parents=True)
    (incoming / "deep" / "dicom" / "1.dcm").touch()
    for name in ("-x.svs", "--project=.svs", "a b;c.tiff", "plain.svs", "notes.txt", "cohort.csv"):
        (incoming / name).touch()
    root = tmp_path / "project"
    for slide_id in ("S-1", "-rf", "list.csv"):
        (root / "slides" / f"{slide_id}.ome.zarr").mkdir(parents=True)
    (root / "models" / "-m").mkdir(parents=True)
    (root / "models" / "-m" / "config.json").touch()
    (root / "models" / "empty").mkdir()
    (root / "recipes").mkdir()
    (root / "recipes" / "--nproc=9.toml").touch()
    (root / "gemslide.toml").touch()
    return Project(root)


@pytest.fixture
def folders(project: Project, monkeypatch: pytest.MonkeyPatch) -> SlideFolders:
    monkeypatch.delenv(SLIDES_VARIABLE, raising=False)
    return SlideFolders.of(project, ("incoming",))


def refused_by_the_verb(*argv: str) -> str:
    """What the command line itself makes of it, without running it: each verb says first what it cannot find."""
    return CliRunner().invoke(cli, argv).output


def test_slides_are_offered_from_the_folders_alone(folders: SlideFolders) -> None:
    names = ("-x.svs", "--project=.svs", "a b;c.tiff", "plain.svs", "cohort.csv", "deep/dicom")
    assert folders.offered() == sorted(f"incoming/{name}" for name in names)


def test_names_that_look_like_options_stay_names(folders: SlideFolders) -> None:
    chosen = ["incoming/-x.svs", "incoming/--project=.svs", "incoming/a b;c.tiff", "incoming/deep/dicom"]

    command = ingest_command(folders, chosen, workers=2, mpp=0.25)

    assert command.argv == ("ingest", "--project=.", "--json", "--workers=2", "--mpp=0.25", "--", *chosen)
    assert command.slides == 4
    assert "x.svs" not in " ".join(command.shown_argv)
    assert command.kept == ("-x", "--project=", "a b;c", "dicom")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_choice_is_refused_everywhere(project: Project, folders: SlideFolders, name: str) -> None:
    for attempt in (
        lambda: ingest_command(folders, [name]),
        lambda: train_command(project, name),
        lambda: infer_command(project, name, []),
        lambda: infer_command(project, "-m", [name]),
        lambda: infer_command(project, "-m", [], devices=name),
        lambda: study_command(project, name),
    ):
        with pytest.raises(BadRunError):
            attempt()


@pytest.mark.parametrize("number", [0, -1, 65, 10**9])
def test_numbers_out_of_range_are_refused(project: Project, folders: SlideFolders, number: int) -> None:
    for attempt in (
        lambda: ingest_command(folders, ["incoming/plain.svs"], workers=number),
        lambda: ingest_command(folders, ["incoming/plain.svs"], mpp=float(number) * 1e3),
        lambda: train_command(project, "demo.toml (shipped)", nproc=number),
        lambda: train_command(project, "demo.toml (shipped)", threads=number),
    ):
        with pytest.raises(BadRunError):
            attempt()


def test_links_that_lead_elsewhere_are_refused(project: Project, folders: SlideFolders, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.svs").touch()
    (project.root / "incoming" / "link.svs").symlink_to(tmp_path / "elsewhere" / "secret.svs")
    (project.root / "incoming" / "folder").symlink_to(tmp_path / "elsewhere")

    for name in ("incoming/link.svs", "incoming/folder/secret.svs"):
        with pytest.raises(BadRunError, match="no slide"):
            ingest_command(folders, [name])


def test_a_manifest_may_name_slides_in_the_folders_only(project: Project, folders: SlideFolders) -> None:
    manifest = project.root / "incoming" / "cohort.csv"
    manifest.write_text("path,slide_id\nplain.svs,S-7\n../../elsewhere.svs,S-8\n")
    with pytest.raises(BadRunError, match="1 of its 2 slides lie outside"):
        ingest_command(folders, ["incoming/cohort.csv"])

    manifest.write_text("path,slide_id\nplain.svs,S-7\n")
    command = ingest_command(folders, ["incoming/cohort.csv"])
    assert (command.slides, command.kept) == (1, ("S-7",))

    manifest.write_text("nonsense\n")
    with pytest.raises(BadManifestError):
        ingest_command(folders, ["incoming/cohort.csv"])


def test_a_folder_elsewhere_counts_where_the_operator_names_it_and_not_the_project(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    (scans / "one.svs").touch()
    monkeypatch.setenv(SLIDES_VARIABLE, os.pathsep.join([str(scans), "relative"]))

    command = ingest_command(SlideFolders.of(project, ()), ["scans/one.svs"])

    assert command.argv[-1] == str(scans / "one.svs")
    for folder in (str(scans), "../scans", ""):
        project.settings_path.write_text(f"[app]\nslide_folders = [{folder!r}]\n")
        with pytest.raises(BadRecipeError, match="inside the project"):
            load_settings(project.settings_path)


@pytest.mark.parametrize("named", ["relative", "/nowhere/at/all", __file__])
def test_whoever_starts_the_app_is_told_that_a_folder_cannot_be_used(
    named: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SLIDES_VARIABLE, os.pathsep.join([str(project.root), named]))
    with pytest.raises(BadRecipeError, match=f"{SLIDES_VARIABLE}: '{named}' is not the whole path of a folder"):
        check_slide_folders()


def test_recipes_are_the_projects_and_the_shipped_ones(project: Project) -> None:
    offered = recipes(project)

    assert offered["recipes/--nproc=9.toml"] == "./recipes/--nproc=9.toml"
    assert offered["demo.toml (shipped)"] == "demo.toml"
    assert "gemslide.toml" not in offered
    assert train_command(project, "recipes/--nproc=9.toml").argv[-2:] == ("--", "./recipes/--nproc=9.toml")
    (project.root / "demo.toml").touch()  # now that name means the project's file
    assert "demo.toml (shipped)" not in recipes(project)


def test_models_and_slides_stay_names_and_a_slide_is_no_manifest(project: Project) -> None:
    command = infer_command(project, "-m", ["S-1", "-rf", "list.csv", "S-1"], devices="cuda:0,cuda:1+cpu")

    assert command.argv[3:] == (
        "--devices=cuda:0,cuda:1+cpu", "--", "-m", "S-1", "-rf", "slides/list.csv.ome.zarr",
    )  # fmt: skip
    assert infer_command(project, "-m", []).slides == 3
    with pytest.raises(BadRunError):
        infer_command(project, "empty", [])


def test_the_verb_takes_the_command_line_as_it_is_meant(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    assert "models/-m/model.safetensors: No such file" in refused_by_the_verb(*infer_command(project, "-m", []).argv)


def test_a_studys_workers_stay_on_this_computer(project: Project) -> None:
    folder = project.root / "studies" / "sites"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text("nonsense")
    with pytest.raises(BadRecipeError):
        study_command(project, "sites")
    (folder / "study.toml").write_text(
        '[study]\ntitle = "t"\nquestion = "q"\ncohort = "../../incoming/cohort.csv"\n'
        f'[[models]]\nid = "m"\nsha256 = "{"0" * 64}"\n'
    )

    command = study_command(project, "sites", workers=3, devices="cpu")

    assert command.argv == (
        "study", "run", "--project=.", "--json", "--on=local", "--devices=cpu", "--workers=3", "--", "sites",
    )  # fmt: skip
    assert study_command(project, "sites", begin_only=True).argv == ("study", "begin", "--project=.", "--", "sites")
