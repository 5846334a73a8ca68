"""Only the installation, never the project, may allow paths that lead out of a project."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pathology_app.people.account_file import AccountError
from pathology_app.serving.installation import check_installation
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import OutsideFoldersError
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.settings import site
from pipeline.settings.source_folders import check_source, open_checked
from pipeline.slides.registry import open_slide
from tests.pipeline.make import sample_image
from tests.pipeline.slides.test_dicom_folders import split
from tests.small_trained_project import make_slide
from training.foundation.errors import BadRecipeError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for variable in (site.SITE_VARIABLE, site.SLIDES_VARIABLE, site.LEDGER_VARIABLE, site.LINKS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "project" / "incoming").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    return Project(tmp_path / "project")


def write_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int = 0o644) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    path.chmod(mode)
    monkeypatch.setenv(site.SITE_VARIABLE, str(path))


def test_the_environment_comes_before_the_site_file(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    write_site(tmp_path, monkeypatch, f'slides = ["{elsewhere}"]\nproxies = ["10.0.0.0/8", "fd00::1"]\n')
    assert site.slide_folders() == (str(elsewhere),)
    assert [str(network) for network in site.trusted_proxies()] == ["10.0.0.0/8", "fd00::1/128"]
    monkeypatch.setenv(site.SLIDES_VARIABLE, str(tmp_path))
    monkeypatch.setenv(site.PROXIES_VARIABLE, "::1, 192.168.0.1")
    assert site.slide_folders() == (str(tmp_path),)
    assert [str(network) for network in site.trusted_proxies()] == ["::1/128", "192.168.0.1/32"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slide = []", "unknown key slide"),
        ('slides = ["scans"]', "not the absolute path of an existing folder"),
        ('proxies = ["proxy.example.org"]', "neither an IP address"),
        ("slides = [", "not valid TOML"),
    ],
)
def test_a_site_file_that_cannot_be_used_is_one_message(
    text: str, said: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_site(tmp_path, monkeypatch, text)
    with pytest.raises(BadRecipeError, match=said):
        check_installation(project)
    write_site(tmp_path, monkeypatch, "", mode=0o666)
    with pytest.raises(BadRecipeError, match=r"others can change.*chmod go-w"):
        check_installation(project)


@pytest.mark.parametrize("name", ["gemslide.db", "gemslide.db-wal", "gemslide.db-journal"])
def test_a_ledger_that_is_a_link_to_anothers_is_refused_and_not_touched(
    name: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "elsewhere" / "gemslide.db"
    other.write_bytes(b"another's")
    (project.root / name).symlink_to(other)
    with pytest.raises(OutsideFoldersError, match="a link leads out of the project"):
        open_ledger(project)
    assert other.read_bytes() == b"another's"


@pytest.mark.parametrize(
    "name",
    [
        "slides", "models/m-1", "results", "runs", "cache", "tiles/a.parquet", "studies/s", "studies/s/study.toml",
        "slides/S-1.ome.zarr/predictions", "slides/S-1.ome.zarr/0/c/0/0", "models/m-1/card.md", "recipes/a.toml",
        "results/m-1/S-1/hotspots.json", "runs/tensorboard/a",
    ],
)  # fmt: skip
def test_a_project_that_leads_out_by_a_link_is_not_served_unless_the_installation_says_so(
    name: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = project.root / name
    link.parent.mkdir(exist_ok=True, parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutsideFoldersError, match=f"{name}: a link leads out.*GEMSLIDE_LINKS"):
        check_installation(project)
    write_site(tmp_path, monkeypatch, f'[project."{project.root}"]\nlinks = ["{tmp_path}/elsewhere"]\n')
    check_installation(project)


def test_a_project_is_not_served_whose_link_leads_to_another_that_leads_out(project: Project, tmp_path: Path) -> None:
    hidden = project.root / "incoming" / ".h"
    hidden.mkdir(parents=True)
    (hidden / "m-1").symlink_to(tmp_path / "elsewhere")
    (hidden / "back").symlink_to(project.root)
    check_installation(project)  # nothing of it is the app's
    project.results_dir.mkdir()
    (project.results_dir / "m-1").symlink_to(hidden)
    with pytest.raises(OutsideFoldersError, match=r"incoming/\.h/m-1: a link leads out"):
        check_installation(project)


def test_accounts_that_are_a_link_let_nobody_in(project: Project, tmp_path: Path) -> None:
    (project.root / "accounts.toml").symlink_to(tmp_path / "elsewhere" / "accounts.toml")
    with pytest.raises(AccountError, match="is a link"):
        check_installation(project)


def test_in_the_app_and_its_runs_a_store_that_is_a_link_is_not_the_projects(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.slides_dir.mkdir()
    (project.slides_dir / "S-1.ome.zarr").symlink_to(tmp_path / "elsewhere")
    assert project.store_path("S-1")
    monkeypatch.setenv(site.WITHIN_VARIABLE, json.dumps([str(project.root)]))
    with pytest.raises(OutsideFoldersError):
        project.store_path("S-1")


def test_a_run_reads_slides_and_manifests_in_its_folders_only(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, inside = tmp_path / "elsewhere" / "a.tiff", project.root / "incoming" / "a.tiff"
    make_slide(outside, 1)
    inside.write_bytes(outside.read_bytes())
    link = project.root / "incoming" / "link.tiff"
    link.symlink_to(outside)
    dicom = project.root / "incoming" / "dicom"
    dicom.mkdir()
    (dicom / "1.dcm").symlink_to(outside)
    zarr, hidden = project.root / "incoming" / "x.zarr", project.root / "incoming" / ".h"
    zarr.mkdir()
    (zarr / "0").symlink_to(hidden)
    hidden.mkdir()
    (hidden / "0").symlink_to(tmp_path / "elsewhere")
    mrxs = project.root / "incoming" / "b.mrxs"
    mrxs.touch()
    (project.root / "incoming" / "b").symlink_to(tmp_path / "elsewhere")
    index = project.root / "incoming" / "c.vms"
    index.write_text("[Virtual Microscope Specimen]\nImageFile=../../elsewhere/a.tiff\n")
    manifest = project.root / "incoming" / "cohort.csv"
    manifest.write_text("path,slide_id,annotations\n../../elsewhere/a.tiff,S-1,\na.tiff,S-2,../../elsewhere/x.xml\n")
    with open_slide(outside):
        pass  # at a terminal
    monkeypatch.setenv(site.WITHIN_VARIABLE, json.dumps([str(project.root)]))

    with open_slide(inside):
        pass
    indirect = project.root / "incoming" / ".." / ".." / "elsewhere" / "a.tiff"
    for path in (outside, link, dicom, zarr, mrxs, index, indirect):
        with pytest.raises(OutsideFoldersError, match=r"outside the folders.*GEMSLIDE_SLIDES"):
            open_slide(path)
    one, two = load_cohort(manifest).entries
    with pytest.raises(OutsideFoldersError):
        load_cohort(manifest).slide_path(one)
    with pytest.raises(OutsideFoldersError):
        load_cohort(manifest).annotations_path(two)
    manifest.rename(tmp_path / "elsewhere" / "cohort.csv")
    with pytest.raises(OutsideFoldersError):
        load_cohort(tmp_path / "elsewhere" / "cohort.csv")


@dataclass
class Opened:
    files: tuple[Path, ...]


def test_a_link_that_is_changed_while_a_slide_is_opened_is_noticed(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "one").touch()
    (tmp_path / "elsewhere" / "other").touch()
    link = project.root / "link"
    link.symlink_to(project.root / "one")
    opened = Opened((link,))
    closed: list[Opened] = []

    def opening() -> Opened:
        link.unlink()
        link.symlink_to(tmp_path / "elsewhere" / "other")
        return opened

    monkeypatch.setenv(site.WITHIN_VARIABLE, json.dumps([str(project.root)]))
    assert check_source(link) == (str(project.root / "one"),)
    with pytest.raises(OutsideFoldersError):
        open_checked(link, opening, closed.append)
    assert closed == [opened]


@pytest.mark.parametrize(
    "line", ["ImageFile=../../Müller/a b.jpg", r"ImageFile = ../../Müller/a\sb.jpg", "X=/../../Müller"]
)
@pytest.mark.parametrize("name", ["c.vms", "c.vmu", "c.svs", "c.mrxs"])
def test_a_slide_s_own_text_names_no_file_elsewhere_in_whatever_spelling(
    project: Project, tmp_path: Path, name: str, line: str
) -> None:
    (tmp_path / "Müller").mkdir()
    (tmp_path / "Müller" / "a b.jpg").touch()
    slide, beside = project.root / "incoming" / name, project.root / "incoming" / "c"
    beside.mkdir()
    (beside / "Slidedat.ini").write_text(f"[GENERAL]\n{line.replace('../../', '../../../')}\n", encoding="utf-8")
    slide.write_text("" if name == "c.mrxs" else f"[Virtual Microscope Specimen]\n{line}\n", encoding="utf-8")
    assert check_source(slide, [str(tmp_path)])
    with pytest.raises(OutsideFoldersError):
        check_source(slide, [str(project.root)])


def test_the_other_parts_of_a_dicom_concatenation_lie_inside_too(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, outside = project.root / "incoming", tmp_path / "elsewhere"
    split(folder / "a.dcm", sample_image(300, 200), [0, 7], folder)
    second, first = sorted(folder.glob("*.dcm"))
    second.rename(outside / second.name)
    second.symlink_to(outside / second.name)
    with open_slide(first):
        pass  # at a terminal
    monkeypatch.setenv(site.WITHIN_VARIABLE, json.dumps([str(project.root)]))
    with pytest.raises(OutsideFoldersError):
        open_slide(first)
