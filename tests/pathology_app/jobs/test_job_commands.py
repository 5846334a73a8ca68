"""Command lines of runs: no typed, named or sent text becomes an option, a path elsewhere or a shell word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pathology_app.jobs.commands import infer_command, ingest_command, study_command, train_command
from pathology_app.jobs.offers import BadRunError, SlideFolders, recipes
from pathology_app.jobs.start import start_job
from pathology_app.serving.installation import check_installation
from pipeline.cli import cli
from pipeline.errors import BadManifestError, OutsideFoldersError
from pipeline.project import Project
from pipeline.settings.config import load_settings
from pipeline.settings.site import SLIDES_VARIABLE
from training.foundation.errors import BadRecipeError

HOSTILE = (
    "--help", "-x", "--project=/etc", "; rm -rf /", "$(id)", "`id`", "a b", "../..", "/etc/passwd", "a\nb", "a\0b", "",
    ".", "..", "incoming/../../etc/passwd", "incoming//etc/passwd", "incoming", "💥", "x" * 5000,
)  # fmt: skip
RECIPE = '[data]\ntile_set = "t"\n[model]\ndepth = 11\nnum_classes = 2\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Project with two slides, a model and a recipe, and slide files with awkward names."""
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
    (root / "recipes" / "--nproc=9.toml").write_text(RECIPE)
    (root / "recipes" / "notes.toml").write_text("[model]\n")
    (root / "accounts.toml").write_text('[[account]]\nname = "ada"\n')
    (root / "gemslide.toml").touch()
    return Project(root)


@pytest.fixture
def folders(project: Project, monkeypatch: pytest.MonkeyPatch) -> SlideFolders:
    monkeypatch.delenv(SLIDES_VARIABLE, raising=False)
    return SlideFolders.of(project, ("incoming",))


def refused_by_the_verb(*argv: str) -> str:
    """Output of the command line itself, which reports what it cannot find before it runs anything."""
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


def test_a_slide_with_a_double_suffix_is_kept_by_the_id_that_ingest_gives_it(
    project: Project, folders: SlideFolders
) -> None:
    (project.root / "incoming" / "S-9.ome.tif").touch()

    assert ingest_command(folders, ["incoming/S-9.ome.tif"]).kept == ("S-9",)


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
        with pytest.raises(BadRunError, match="not a slide"):
            ingest_command(folders, [name])


def test_a_manifest_may_name_slides_in_the_folders_only(project: Project, folders: SlideFolders) -> None:
    manifest = project.root / "incoming" / "cohort.csv"
    manifest.write_text("path,slide_id\nplain.svs,S-7\n../../elsewhere.svs,S-8\n")
    with pytest.raises(BadRunError, match="1 of its 2 slides is outside"):
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
    monkeypatch.setenv(SLIDES_VARIABLE, str(scans))

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
    with pytest.raises(BadRecipeError, match=f"{SLIDES_VARIABLE}: '{named}': not the absolute path of an existing"):
        check_installation(project)


def test_recipes_are_the_projects_and_the_shipped_ones(project: Project) -> None:
    offered = recipes(project)

    assert offered["recipes/--nproc=9.toml"] == "./recipes/--nproc=9.toml"
    assert offered["demo.toml (shipped)"] == "demo.toml"
    assert "gemslide.toml" not in offered
    assert train_command(project, "recipes/--nproc=9.toml").argv[-2:] == ("--", "./recipes/--nproc=9.toml")
    assert recipes(project).keys().isdisjoint({"accounts.toml", "recipes/notes.toml"})
    (project.root / "demo.toml").write_text(RECIPE)  # that name now means the project's file
    assert "demo.toml (shipped)" not in recipes(project)


@pytest.mark.parametrize(("parallel", "ranks"), [("", 1), ("num_stages = 3\ndata_parallel = 2", 6)])
def test_a_training_starts_as_many_ranks_as_its_recipe_asks_for(project: Project, parallel: str, ranks: int) -> None:
    (project.root / "own.toml").write_text(f"{RECIPE}\n[parallel]\n{parallel}\n")

    assert f"--nproc={ranks}" in train_command(project, "own.toml").argv
    assert "--nproc=2" in train_command(project, "demo.toml (shipped)").argv
    assert "--nproc=4" in train_command(project, "own.toml", nproc=4).argv


def test_a_recipe_that_asks_for_a_thousand_ranks_starts_none_unasked(project: Project) -> None:
    (project.root / "own.toml").write_text(f"{RECIPE}\n[parallel]\nnum_stages = 1000\n")

    with pytest.raises(BadRecipeError, match="requests 1000 ranks"):
        train_command(project, "own.toml")


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
        f'[[models]]\nid = "m"\nsha256 = "{"0" * 64}"\nconfig_sha256 = "{"0" * 64}"\n'
    )

    command = study_command(project, "sites", workers=3, devices="cpu")

    assert command.argv == (
        "study", "run", "--project=.", "--json", "--on=local", "--devices=cpu", "--workers=3", "--", "sites",
    )  # fmt: skip
    assert study_command(project, "sites", begin_only=True).argv == ("study", "begin", "--project=.", "--", "sites")


@pytest.mark.parametrize("manifest", ["cohort.csv", "cohort.tsv", "cohort.txt", "cohort"])
def test_a_run_is_refused_where_it_is_started_whatever_the_form_said(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "secret.svs").touch()
    incoming, folder = project.root / "incoming", project.root / "studies" / "sites"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(
        f'[study]\ntitle = "t"\nquestion = "q"\ncohort = "../../incoming/{manifest}"\n'
        f'[[models]]\nid = "m"\nsha256 = "{"0" * 64}"\nconfig_sha256 = "{"0" * 64}"\n'
    )
    (incoming / manifest).write_text(f"path,slide_id\nplain.svs,S-7\n{elsewhere}/secret.svs,S-8\n")
    chosen = ingest_command(SlideFolders.of(project, ("incoming",)), ["incoming/plain.svs"])
    (incoming / "plain.svs").unlink()
    (incoming / "plain.svs").symlink_to(elsewhere / "secret.svs")
    commands = [chosen, study_command(project, "sites"), study_command(project, "sites", begin_only=True)]
    for command in commands:
        with pytest.raises(OutsideFoldersError, match=r"outside (of )?the folders"):
            start_job(project, command, by="cora", max_jobs=1)

    (incoming / "plain.svs").unlink()
    incoming.rename(tmp_path / "moved")
    incoming.symlink_to(tmp_path / "moved")
    assert SlideFolders.of(project, ("incoming",)).folders
    with pytest.raises(BadRunError, match="not a slide or manifest"):
        ingest_command(SlideFolders.of(project, ("incoming",)), ["incoming/-x.svs"])
    with pytest.raises(OutsideFoldersError):
        start_job(project, commands[1], by="cora", max_jobs=1)
    assert not project.jobs_dir.exists() or not list(project.jobs_dir.glob("*.json"))
    monkeypatch.setenv(SLIDES_VARIABLE, str(tmp_path / "moved"))
    assert ingest_command(SlideFolders.of(project, ("incoming",)), ["incoming/-x.svs"]).slides == 1
