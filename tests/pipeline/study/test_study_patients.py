"""Slide-level models in a study: a patient is predicted from all slides, once these have come as far."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from pathlib import Path

import pytest
import tomli_w

from pipeline.embedding import TileEncoder, embed_slide
from pipeline.errors import BadManifestError, LeakageError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig, IngestConfig
from pipeline.slide_level.record import RECORD, read_record
from pipeline.slide_level.stored_bags import open_slide_features
from pipeline.store.layers.attention import attention_path, read_attention
from pipeline.study.new_protocol import new_protocol
from pipeline.study.outcomes.retries import retry
from pipeline.study.privacy.export import export_study
from pipeline.study.privacy.keyed import open_pseudonym_key
from pipeline.study.proof.erasure import erase
from pipeline.study.proof.outputs import find_changed_outputs
from pipeline.study.proof.reproduction import reproduce
from pipeline.study.proof.verify import verify_log
from pipeline.study.protocol import AboutStudy, Protocol, load_protocol, model_of
from pipeline.study.report.publish import write_report
from pipeline.study.work.amendments import amend
from pipeline.study.work.leases import Ended, Lease
from pipeline.study.work.study import Study, begin_study, begun_study, open_study, work_on
from tests.pipeline.slide_level.drawn_model import write_drawn_model
from tests.pipeline.study.small_study import copied_study, ledger_of, tasks_done_twice
from tests.small_trained_project import TISSUE, TISSUE_TOML, make_slide
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, folder_row, timm_state
from training.foundation.errors import BadRecipeError
from training.foundation.words.unit_digest import unit_digest

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.xdist_group("study-patients")]
SLIDES = {"a": "p-1", "b": "p-1", "c": "p-2", "d": "p-3"}
"""Patient of each slide; `bad` of p-3 is not a slide file."""
LABELS = {"a": "yes", "b": "yes", "c": "no", "d": "no"}


def write_manifest(project: Project, *, without: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> None:
    rows = [
        f"{name}.tiff,{name},{patient},{LABELS[name]},{'broken' if name in exclude else ''}"
        for name, patient in SLIDES.items()
        if name not in without
    ]
    bad = ["bad.tiff,bad,p-3,no," + ("unreadable" if "bad" in exclude else "")]
    text = "\n".join(["path,slide_id,patient_id,label,exclude", *rows, *bad])
    (project.root.parent / "cohort.csv").write_text(text + "\n")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> tuple[Project, str]:
    """A project with a model of patients, its encoder, and the protocol of a study "s" that is about to begin."""
    folder = tmp_path_factory.mktemp("study-patients")
    project = Project(folder / "p")
    for seed, name in enumerate(SLIDES):
        make_slide(folder / f"{name}.tiff", seed)
    (folder / "bad.tiff").write_bytes(b"II*\0 and nothing more")
    row = folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG)
    scratch = Project(folder / "scratch")
    ingest_slide(IngestRequest(folder / "a.tiff", "a"), scratch, IngestConfig(tissue=TISSUE))
    encoder = TileEncoder.load(row)
    embed_slide("a", encoder, scratch, EmbedConfig(min_tissue=0.25))
    slide = open_slide_features(scratch, "a", encoder.encoder_id)
    assert slide is not None
    model_id = write_drawn_model(project, slide, level="patient").name
    project.settings_path.write_text(TISSUE_TOML)
    write_manifest(project)
    about = AboutStudy(title="t", question="?", cohort=str(folder / "cohort.csv"))
    protocol = new_protocol(project, "s", about, [model_id])
    endpoint = {"name": "auc", "measure": "auc", "level": "patient", "model": model_id, "class_name": "yes"}
    protocol.write_text(protocol.read_text() + tomli_w.dumps({"endpoints": [endpoint]}))
    return project, model_id


@pytest.fixture(scope="module")
def whole(prepared) -> Project:
    """The same after the study ran to its end."""
    with ledger_of(prepared[0]) as ledger:
        work_on(begin_study(prepared[0], "s", ledger, actor="ada"))
    return prepared[0]


@pytest.fixture
def finished(whole, tmp_path):
    """A copy of the finished study, which a test may change."""
    with copied_study(whole, tmp_path) as study:
        yield study


@pytest.fixture
def model_id(prepared) -> str:
    return prepared[1]


def copied(project: Project, folder: Path) -> Project:
    """The prepared project as it was before its study began."""
    made = shutil.ignore_patterns("gemslide.db*", "scratch", "slides", "results")
    shutil.copytree(project.root.parent, folder / "copy", ignore=made)
    return Project(folder / "copy" / "p")


def states(study: Study) -> dict[str, tuple[str, str | None]]:
    return {row.slide_id: (row.state, row.code) for row in study.ledger.slides("s")}


def task_of(study: Study, slide_id: str, model_id: str):
    return next(row for row in study.ledger.tasks("s", slide_id) if row.stage == f"predict {model_id}")


def record_of(study: Study, slide_id: str, model_id: str) -> dict:
    record = read_record(study.project.result_dir(slide_id, model_id))
    assert record is not None
    return record


def test_the_protocol_has_the_models_encoder_and_its_choice_of_tiles(whole, model_id):
    protocol = load_protocol(whole.root / "studies" / "s" / "study.toml")
    (model,) = protocol.models
    assert (model.id, model.level) == (model_id, "patient")
    assert [encoder.name for encoder in protocol.encoders] == ["tiny"]
    assert protocol.embed.min_tissue == 0.25
    assert protocol.stages[-1] == f"predict {model_id}"


def test_a_patient_is_predicted_once_from_all_slides(finished, model_id):
    assert {name: states(finished)[name][0] for name in "abc"} == dict.fromkeys("abc", "done")
    first, second, alone = (record_of(finished, name, model_id) for name in "abc")

    assert first["slides"] == second["slides"] == ["a", "b"]
    assert first["targets"] == second["targets"] != alone["targets"]
    assert (first["unit"], alone["unit"], alone["slides"]) == ("p-1", "p-2", ["c"])
    measures = [json.loads(task_of(finished, name, model_id).measures) for name in "ab"]
    assert measures[0]["answers"] == first["targets"]
    assert measures[0]["slides_sha256"] == measures[1]["slides_sha256"]
    assert measures[0]["tiles"] == first["tiles"]
    assert all((finished.project.result_dir(name, model_id) / "study_s.json").is_file() for name in "ab")
    assert find_changed_outputs(finished.project, finished.ledger, "s") == []
    assert verify_log(finished.ledger.database, "s").findings == ()


def test_it_says_what_infer_says(finished, model_id, gemslide, tmp_path):
    project = Project(tmp_path / "other")
    shutil.copytree(finished.project.models_dir, project.models_dir)
    shutil.copytree(finished.project.root / "encoders", project.root / "encoders")
    project.settings_path.write_text(TISSUE_TOML)
    done = gemslide("infer", model_id, finished.project.root.parent / "cohort.csv", "--project", project.root)
    assert done.code == 1, "bad.tiff is not a slide"
    for name in "abc":
        said = read_record(project.result_dir(name, model_id))
        assert said is not None
        assert said["targets"] == record_of(finished, name, model_id)["targets"]


def test_a_patient_of_whom_a_slide_ended_is_not_predicted_from_the_rest(finished, model_id):
    assert states(finished)["bad"] == ("unreadable", "unreadable")
    assert states(finished)["d"] == ("refused", "incomplete_patient")
    message = task_of(finished, "d", model_id).message
    assert "1 other slide of its patient has ended without a result" in message
    assert "bad" not in message
    assert not finished.project.result_dir("d", model_id).exists()


def test_it_is_predicted_once_the_slide_is_excluded_with_a_reason(finished, model_id):
    write_manifest(finished.project, exclude=("bad",))
    amended = amend(finished, actor="ada", why="the file is no slide")
    retry(amended.ledger, "s", ["d"], None, actor="ada", why="its patient is complete")
    work_on(begun_study(amended.project, "s", amended.ledger))
    assert states(amended)["d"] == ("done", None)
    assert record_of(amended, "d", model_id)["slides"] == ["d"]


def test_a_slide_that_is_mended_is_waited_for(finished, model_id):
    make_slide(finished.project.root.parent / "bad.tiff", 9)
    retry(finished.ledger, "s", ["d", "bad"], None, actor="ada", why="copied again")
    assert task_of(finished, "d", model_id).state == "blocked", "the other slide has not come as far"
    work_on(finished)
    assert states(finished)["d"] == states(finished)["bad"] == ("done", None)
    assert record_of(finished, "d", model_id)["slides"] == ["bad", "d"]


def test_an_excluded_slide_leaves_its_patients_prediction(finished, model_id):
    before = record_of(finished, "a", model_id)
    kept = task_of(finished, "c", model_id)
    write_manifest(finished.project, exclude=("b",))
    amended = amend(finished, actor="ada", why="broken glass")
    assert states(amended)["a"] == ("pending", None)
    assert task_of(amended, "c", model_id) == kept
    work_on(amended)
    after = record_of(amended, "a", model_id)
    assert (after["slides"], states(amended)["a"][0]) == (["a"], "done")
    assert after["targets"] != before["targets"]
    assert find_changed_outputs(amended.project, amended.ledger, "s") == []


@pytest.mark.parametrize("excluded", [(), ("a",)], ids=["the rest stays", "the rest is excluded"])
def test_an_erased_slide_is_in_no_prediction_and_no_row(finished, model_id, excluded):
    if excluded:
        write_manifest(finished.project, exclude=excluded)
        finished = amend(finished, actor="ada", why="broken glass")
        work_on(finished)
    write_manifest(finished.project, without=("b",), exclude=excluded)
    erase(begun_study(finished.project, "s", finished.ledger), ["b"], actor="ada", why="asked for")
    assert not (finished.project.result_dir("a", model_id) / RECORD).exists()
    assert not attention_path(finished.project.store_path("a"), model_id).exists()
    work_on(begun_study(finished.project, "s", finished.ledger))
    if not excluded:
        assert record_of(finished, "a", model_id)["slides"] == ["a"]
    assert find_changed_outputs(finished.project, finished.ledger, "s") == []
    assert verify_log(finished.ledger.database, "s").findings == ()


def other_answer(study: Study, model_id: str) -> None:
    path = study.project.result_dir("a", model_id) / RECORD
    record = json.loads(path.read_text())
    record["targets"]["tumour"]["values"].reverse()
    path.write_text(json.dumps(record))


def other_attention(study: Study, model_id: str) -> None:
    a, c = (attention_path(study.project.store_path(name), model_id) for name in "ac")
    shutil.rmtree(a / "0")
    shutil.copytree(c / "0", a / "0")


def no_record(study: Study, model_id: str) -> None:
    (study.project.result_dir("a", model_id) / RECORD).unlink()


@pytest.mark.parametrize("tamper", [other_answer, other_attention, no_record])
def test_answers_and_attention_that_are_not_the_ledgers_are_found(finished, model_id, tamper):
    tamper(finished, model_id)
    (finding,) = find_changed_outputs(finished.project, finished.ledger, "s")
    assert finding.startswith(f"slide a, predict {model_id}: ")


def test_a_patient_is_reproduced_from_the_slide_files(finished):
    (same,) = reproduce(finished, ["b"], actor="ada")
    assert same.differs == ()


def test_the_report_measures_an_endpoint_by_patient(finished, model_id):
    report = write_report(finished, actor="ada")
    (row,) = (report.folder / "tables" / "endpoints.csv").read_text().splitlines()[1:]
    cells = row.split(",")
    assert cells[0] == "auc"
    assert f"AUC of yes, by patient, {model_id}" in row.replace('"', "")
    page = report.html.read_text()
    assert f"predict {model_id}" in page


def test_an_export_has_the_answers_and_no_name(finished, model_id, tmp_path):
    key = open_pseudonym_key(tmp_path / "key")
    exported = export_study(finished, tmp_path / "out", key, results=["attention.geojson"], actor="ada")
    rows = csv.DictReader((exported.folder / "tasks.csv").read_text().splitlines())
    measures = {(row["slide_id"], row["stage"]): row["measures"] for row in rows}
    stated = json.loads(measures[key.pseudonym("slide", "c"), f"predict {model_id}"])
    assert stated["answers"] == record_of(finished, "c", model_id)["targets"]


def test_a_run_that_would_replace_what_a_study_relies_on_is_refused(finished, model_id, gemslide):
    before = read_attention(finished.project.store_path("a"), model_id).attributes["made_from"]
    alone = gemslide("infer", model_id, "b", "--project", finished.project.root)
    assert alone.code == 1
    assert "study s relies on its output" in " ".join(alone.err.split())
    assert read_attention(finished.project.store_path("a"), model_id).attributes["made_from"] == before


def change(project: Project, old: str, new: str) -> None:
    path = project.root / "studies" / "s" / "study.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def without_encoder(project: Project, model_id: str) -> None:
    path = project.root / "studies" / "s" / "study.toml"
    raw = tomllib.loads(path.read_text())
    del raw["encoders"]
    path.write_text(tomli_w.dumps(raw))


def other_tiles(project: Project, model_id: str) -> None:
    change(project, "min_tissue = 0.25", "min_tissue = 0.5")


def other_level(project: Project, model_id: str) -> None:
    path = project.root / "studies" / "s" / "study.toml"
    raw = tomllib.loads(path.read_text())
    raw["models"][0]["level"] = "slide"
    raw["endpoints"][0]["level"] = "slide"
    path.write_text(tomli_w.dumps(raw))


def no_patient(project: Project, model_id: str) -> None:
    path = project.root.parent / "cohort.csv"
    path.write_text(path.read_text().replace("c,p-2", "c,"))


def trained_on(project: Project, model_id: str) -> None:
    path = project.model_path(model_id) / "config.json"
    content = json.loads(path.read_text())
    content["gemslide"]["trained_units"] = [unit_digest("p-2")]
    path.write_text(json.dumps(content))
    protocol = load_protocol(project.root / "studies" / "s" / "study.toml")
    change(project, protocol.models[0].config_sha256, model_of(project.model_path(model_id)).config_sha256)


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (without_encoder, BadRecipeError, "takes features of encoder tiny-.* not among the study's"),
        (other_tiles, BadRecipeError, r"\[embed\] says min_tissue = 0.5, not 0.25"),
        (other_level, BadRecipeError, "predicts patients, but"),
        (no_patient, BadManifestError, "slides c have no patient_id"),
        (trained_on, LeakageError, "trained on, or chosen by, patients of this cohort: c"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_the_study_begins(prepared, tmp_path, spoil, error, words):
    project = copied(prepared[0], tmp_path)
    spoil(project, prepared[1])
    with ledger_of(project) as ledger, pytest.raises(error, match=words):
        begin_study(project, "s", ledger, actor="ada")


def test_a_worker_goes_on_by_the_protocol_of_an_amendment(prepared, tmp_path, model_id):
    """It began when the patient had another slide."""
    project = copied(prepared[0], tmp_path)
    told: list[str] = []
    with ledger_of(project) as ledger:
        study = begin_study(project, "s", ledger, actor="ada")

        def amend_once(lease: Lease, ended: Ended) -> None:
            if lease.stage.startswith("embed") and not told:
                write_manifest(project, exclude=("b",))
                amend(study, actor="ada", why="broken glass")
                told.append("amended")

        work_on(study, said=amend_once, tell=told.append)
        assert told == ["amended", "study s: was amended; going on by version 2 of its protocol."]
        assert record_of(study, "a", model_id)["slides"] == ["a"]
        assert json.loads((project.result_dir("a", model_id) / "study_s.json").read_text())["version"] == 2


@pytest.mark.parametrize(("level", "words"), [("slide", 'level = "patient"'), ("tile", "and not tiles")])
def test_endpoints_of_a_model_of_patients_are_by_patient(level, words):
    about = {"title": "t", "question": "?", "cohort": "c.csv"}
    model = {"id": "m", "sha256": "0" * 64, "config_sha256": "0" * 64, "level": "patient"}
    endpoint = {"name": "e", "measure": "auc", "level": level, "model": "m"}
    endpoint |= {"tile_set": "t"} if level == "tile" else {}
    with pytest.raises(ValueError, match=words):
        Protocol.model_validate({"study": about, "models": [model], "endpoints": [endpoint]})


def test_two_workers_predict_each_patient_once_and_nothing_twice(prepared, tmp_path, model_id, gemslide):
    project = copied(prepared[0], tmp_path)
    ran = gemslide("study", "run", "s", "--workers", "2", "--devices", "cpu", "--project", project.root, "--json")
    assert ran.code == 1, "bad.tiff is not a slide"
    assert tasks_done_twice(project) == []
    with ledger_of(project) as ledger:
        study = open_study(project, "s", ledger)
        assert [name for name, (state, _) in states(study).items() if state == "done"] == ["a", "b", "c"]
        assert record_of(study, "a", model_id)["targets"] == record_of(study, "b", model_id)["targets"]
        assert find_changed_outputs(project, ledger, "s") == []
        assert verify_log(ledger.database, "s").findings == ()
