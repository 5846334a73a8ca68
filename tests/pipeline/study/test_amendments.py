"""An amendment repeats the work that it affects and nothing else, and records the reason."""

from __future__ import annotations

import shutil

import pytest

from pipeline.errors import BadManifestError
from pipeline.project import Project
from pipeline.study.new_protocol import new_protocol
from pipeline.study.proof.verify import verify_log
from pipeline.study.protocol import AboutStudy
from pipeline.study.work.amendments import amend
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.study import Study, begin_study, begun_study, cleaned_reason

MODEL = "infer {}"


@pytest.fixture
def study(ledger, small_project, tmp_path) -> Study:
    """Study of three slides: S-1 is done, S-2 could not be read, S-3 is being ingested."""
    project = Project(tmp_path / "p")
    shutil.copytree(small_project.project.models_dir, project.models_dir)
    manifest(tmp_path, "S-1", "S-2", "S-3")
    description = AboutStudy(title="t", question="q", cohort=str(tmp_path / "cohort.csv"))
    new_protocol(project, "s", description, [small_project.model_id])
    begun = begin_study(project, "s", ledger, actor="ada")
    mine = worker(begun)
    for _ in range(3):
        mine.finish(mine.take("s"), Ended("done", output_sha256="ab"))
    mine.finish(mine.take("s"), Ended("unreadable", "corrupt_tile"))
    return begun


def manifest(folder, *slides: str) -> None:
    rows = [slide if "," in slide else f"{slide}.tiff,{slide}," for slide in slides]
    (folder / "cohort.csv").write_text("\n".join(["path,slide_id,exclude", *rows]) + "\n")


def worker(study: Study) -> Leases:
    return Leases(study.ledger, this_process(), Limits(), actor="worker")


def change(study: Study, *lines: str) -> None:
    path = study.folder / "study.toml"
    path.write_text(path.read_text() + "\n".join(["", *lines, ""]))


def states(study: Study) -> dict[str, tuple[str, ...]]:
    """States of each slide, and of its tasks."""
    return {
        row.slide_id: (row.state, *(task.state for task in study.ledger.tasks("s", row.slide_id)))
        for row in study.ledger.slides("s")
    }


def check(study: Study) -> None:
    assert not verify_log(study.ledger.database, "s").findings
    assert begun_study(study.project, "s", study.ledger).protocol == study.protocol


FILE = "Mustermann_Erika_1970.tiff"


def test_no_reason_keeps_the_name_of_any_file_of_the_manifest(study):
    manifest(study.project.root.parent, f"{FILE},S-1,", f"S-2.tiff,S-2,same section as {FILE}", "S-3.tiff,S-3,")
    amended = amend(study, actor="ada", why=f"until {FILE} is rescanned; S-1 stays")
    why = cleaned_reason(study.project, "s", study.ledger, f"waiting for {FILE}")
    study.ledger.set_state("s", "paused", actor="ada", why=why)
    slides = amended.ledger.slides("s")
    told = [row.message or "" for row in slides] + [entry.why for entry in amended.ledger.history("s", "study")]
    assert any("same section as" in text for text in told)
    assert any("S-1 stays" in text for text in told)
    assert any("waiting for" in text for text in told)
    assert not [text for text in told if "Mustermann" in text or "Erika" in text]


def test_settings_of_a_stage_do_it_and_what_follows_again(study):
    lease = worker(study).take("s")
    assert (lease.slide_id, lease.stage) == ("S-3", "ingest")
    change(study, "[qc]", "cell_um = 32.0")
    amended = amend(study, actor="ada", why="cells were too coarse")
    assert states(amended) == {
        "S-1": ("pending", "done", "ready", "blocked"),
        "S-2": ("unreadable", "ended", "ended", "ended"),
        "S-3": ("pending", "leased", "blocked", "blocked"),
    }
    assert worker(study).finish(lease, Ended("done"))[0], "ingest is not touched: its result counts"
    assert worker(study).take("s").stage == "qc"
    assert amended.ledger.study("s").version == 2
    assert amended.ledger.history("s", "study")[-1].why == "cells were too coarse"
    check(amended)


def test_who_works_on_what_is_done_again_comes_too_late(study):
    lease = worker(study).take("s")
    change(study, "[ingest]", "gate_tiles = 8")
    amended = amend(study, actor="ada", why="a closer look")
    assert worker(study).finish(lease, Ended("done", output_sha256="old"))[0] is False
    assert states(amended) == dict.fromkeys(("S-1", "S-2", "S-3"), ("pending", "ready", "blocked", "blocked"))
    check(amended)


def test_slides_enter_and_are_excluded_with_a_reason(study, tmp_path):
    manifest(tmp_path, "S-1", "S-2", "S-3.tiff,S-3,wrong patient", "S-4")
    amended = amend(study, actor="ada", why="the registry was corrected")
    assert states(amended) == {
        "S-1": ("done", "done", "done", "done"),
        "S-2": ("unreadable", "ended", "ended", "ended"),
        "S-3": ("excluded", "ended", "ended", "ended"),
        "S-4": ("pending", "ready", "blocked", "blocked"),
    }
    check(amended)
    manifest(tmp_path, "S-1", "S-2", "S-3", "S-4")
    again = amend(amended, actor="ada", why="it was the right patient")
    assert states(again)["S-3"] == ("pending", "ready", "blocked", "blocked")
    check(again)


def test_a_model_that_is_added_predicts_slides_that_were_done(study, small_project, tmp_path):
    second = study.project.model_path(small_project.model_id).with_name("second-00000000")
    shutil.copytree(study.project.model_path(small_project.model_id), second)
    (first,) = study.protocol.models
    hashes = f'sha256 = "{first.sha256}"', f'config_sha256 = "{first.config_sha256}"'
    change(study, "[[models]]", 'id = "second-00000000"', *hashes)
    amended = amend(study, actor="ada", why="a second opinion")
    assert states(amended) == {
        "S-1": ("pending", "done", "done", "done", "ready"),
        "S-2": ("unreadable", "ended", "ended", "ended", "ended"),
        "S-3": ("pending", "ready", "blocked", "blocked", "blocked"),
    }
    check(amended)
    mine = worker(amended)
    assert mine.take("s").stage == "infer second-00000000"


def test_words_and_endpoints_change_no_slide(study):
    before = states(study)
    change(study, "[[endpoints]]", 'name = "e"', 'measure = "auc"', f'model = "{study.protocol.models[0].id}"')
    amended = amend(study, actor="ada", why="asked by the board")
    assert states(amended) == before
    check(amended)


def test_what_no_amendment_can_do_is_refused_and_changes_nothing(study, tmp_path):
    with pytest.raises(BadManifestError, match="neither its protocol nor its manifest has changed"):
        amend(study, actor="ada", why="none")
    with pytest.raises(BadManifestError, match="needs a reason"):
        amend(study, actor="ada", why=" ")
    manifest(tmp_path, "S-1", "S-3")
    with pytest.raises(BadManifestError, match=r"no longer in the manifest: S-2\. A slide stays"):
        amend(study, actor="ada", why="lost")
    manifest(tmp_path, "S-1", "S-2", "S-3")
    path = study.folder / "study.toml"
    path.write_text(path.read_text().replace(study.protocol.models[0].id, "other-00000000"))
    shutil.copytree(study.project.model_path(study.protocol.models[0].id), study.project.model_path("other-00000000"))
    with pytest.raises(BadManifestError, match="An amendment can add models after them"):
        amend(study, actor="ada", why="better")
    assert study.ledger.study("s").version == 1
    check(study)
