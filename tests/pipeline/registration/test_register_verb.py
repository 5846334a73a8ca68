"""`gemslide register`: placed, saved, listed and removed, or refused with exit code 1 and nothing saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.review import Registration, save_registration
from pipeline.verbs.register import RegisterRequest, run_register
from tests.pipeline.registration.tissue_pictures import ingested, stained, tissue, transform, warped

TRUTH = transform(290.0)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("register"))
    ingested(project, "HE-1", stained(tissue(11)))
    ingested(project, "CD3-1", warped(stained(tissue(11)), TRUTH))
    ingested(project, "HE-2", stained(tissue(12)))
    return project


def run(project: Project, *slides: str, as_json: bool = False, **options: bool) -> None:
    run_register(RegisterRequest(slides, **options), project.root, as_json=as_json)


def test_two_sections_are_placed_saved_listed_and_removed(project: Project, capsys) -> None:
    run(project, "HE-1", "CD3-1", dry_run=True)
    text = capsys.readouterr().out
    assert "HE-1 → CD3-1: turned by 70.0° counter-clockwise, top left corner shifted by" in text
    assert " places, " in text
    assert "not saved (--dry-run)" in text
    run(project, listing=True)
    assert "no registrations are saved" in capsys.readouterr().out

    run(project, "HE-1", "CD3-1", as_json=True)
    line = json.loads(capsys.readouterr().out)
    assert line["matrix_px0"] == pytest.approx(list(TRUTH.numbers), abs=0.5)
    assert line["inverse_px0"] == pytest.approx(list(TRUTH.inverse().numbers), abs=0.5)
    assert (line["saved"], line["revision"], line["state"], line["is_mirrored"]) == (True, 1, "current", False)

    run(project, listing=True, as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert (listed["moving"], listed["fixed"], listed["method"]) == ("CD3-1", "HE-1", "features")
    assert listed["matrix_px0"] == pytest.approx(line["inverse_px0"])

    run(project, "CD3-1", "HE-1", remove=True)
    run(project, "HE-1", "CD3-1", listing=True)
    assert "no registrations are saved" in capsys.readouterr().out


def test_other_tissue_is_refused_and_nothing_is_saved(project: Project, capsys) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(project, "HE-1", "HE-2", as_json=True)
    assert ended.value.exit_code == 1
    output = capsys.readouterr()
    line = json.loads(output.out)
    assert (line["code"], line["status"]) == ("not_registered", "refused")
    assert "slides HE-1 and HE-2" in line["message"]
    run(project, listing=True, as_json=True)
    assert "HE-2" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("slides", "options", "message"),
    [
        (("HE-1",), {}, "1 slide given; register takes two"),
        (("HE-1", "HE-1"), {}, "not registered to itself"),
        (("HE-1", "HE-9"), {}, "HE-9: no such slide"),
        (("HE-1",), {"listing": True}, "--list takes no slide, or two or more"),
        (("HE-1", "HE-2"), {"dry_run": True, "remove": True}, "give one of"),
        (("HE-1", "HE-2"), {"remove": True}, "no registration"),
    ],
)
def test_what_cannot_be_meant_is_refused(project: Project, capsys, slides, options, message: str) -> None:
    with pytest.raises(typer.Exit):
        run(project, *slides, **options)
    assert message in capsys.readouterr().err


def test_a_registration_of_other_pixels_or_of_a_deleted_slide_is_listed_as_such(
    project: Project, capsys, tmp_path: Path
) -> None:
    with open_ledger(project) as ledger:
        given = Registration("HE-1", "CD3-1", TRUTH, "features", 12.0, 60, "a" * 64, "b" * 64)
        save_registration(ledger, given, "ada")
    run(project, listing=True)
    assert "outdated: a slide was ingested from another file since" in capsys.readouterr().out
    project.store_path("CD3-1").rename(tmp_path / "away")
    run(project, listing=True)
    assert "a slide is no longer in the project" in capsys.readouterr().out
