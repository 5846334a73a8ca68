"""Encoders of a study: frozen with it, their features made, verified, reproduced and reported like any other output."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tomli_w

from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.ledger.ledger import NewSlide
from pipeline.project import Project
from pipeline.store.layers.features import features_path, list_features, read_features
from pipeline.study.new_protocol import new_protocol
from pipeline.study.privacy.export import export_study
from pipeline.study.privacy.keyed import open_pseudonym_key
from pipeline.study.proof.outputs import find_changed_outputs
from pipeline.study.proof.reproduction import reproduce
from pipeline.study.protocol import AboutStudy, Protocol, load_protocol
from pipeline.study.report.publish import write_report
from pipeline.study.work.amendments import amend
from pipeline.study.work.study import Study, begin_study, begun_study, work_on
from tests.pipeline.study.small_study import copied_study, ledger_of
from tests.small_trained_project import TISSUE_TOML, make_slide
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, WIDTH, folder_row, timm_state
from training.foundation.errors import BadRecipeError, UnreadableError

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.xdist_group("study-embed")]
SLIDES = ("a", "b")


def prepared(folder: Path, small_project) -> Project:
    """A project with a model and an encoder, and the protocol of a study "s" of two slides that is about to begin."""
    project = Project(folder / "p")
    shutil.copytree(small_project.project.models_dir, project.models_dir)
    folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG)
    project.settings_path.write_text(TISSUE_TOML + "[embed]\nmin_tissue = 0.25\n")
    for seed, name in enumerate(SLIDES):
        make_slide(folder / f"{name}.tiff", seed)
    (folder / "cohort.csv").write_text("path,slide_id,patient_id\na.tiff,a,p-a\nb.tiff,b,p-b\n")
    about = AboutStudy(title="t", question="?", cohort=str(folder / "cohort.csv"))
    new_protocol(project, "s", about, [small_project.model_id], encoders=["tiny"])
    return project


@pytest.fixture(scope="module")
def whole(small_project, tmp_path_factory) -> Project:
    project = prepared(tmp_path_factory.mktemp("study-embed"), small_project)
    with ledger_of(project) as ledger:
        work_on(begin_study(project, "s", ledger, actor="ada"))
        assert [row.state for row in ledger.slides("s")] == ["done", "done"]
    return project


@pytest.fixture
def finished(whole, tmp_path):
    """A copy of the finished study, which a test may change."""
    with copied_study(whole, tmp_path) as study:
        yield study


@pytest.fixture
def encoder_id(whole) -> str:
    (found,) = list_features(whole.store_path("a"))
    return found


def changed(study: Study) -> list[str]:
    return find_changed_outputs(study.project, study.ledger, "s")


def test_each_slide_has_a_task_of_the_encoder_whose_output_and_measures_the_ledger_keeps(whole, encoder_id):
    with ledger_of(whole) as ledger:
        stages = {row.stage: row for row in ledger.tasks("s", "b")}
        protocol = begun_study(whole, "s", ledger).protocol
    task = stages[f"embed {encoder_id}"]
    features = read_features(whole.store_path("b"), encoder_id)
    measures = json.loads(task.measures)

    assert list(stages)[2] == f"embed {encoder_id}", "before the models', so that an amendment can add some"
    assert task.output_sha256 == features.attributes["values_sha256"]
    assert (measures["tiles"], measures["dims"]) == features.values_nd.shape == (len(features.xy0_n2), WIDTH)
    assert features.attributes["made_from"]["tiles"]["min_tissue"] == 0.25, "[embed] of the frozen protocol"
    (encoder,) = protocol.encoders
    assert (encoder.id, encoder.name, encoder.sha256) == (encoder_id, "tiny", features.attributes["weights_sha256"])


def other_features(study: Study, encoder_id: str) -> None:
    store = study.project.store_path
    shutil.rmtree(features_path(store("a"), encoder_id))
    shutil.copytree(features_path(store("b"), encoder_id), features_path(store("a"), encoder_id))


def edited_file(study: Study, encoder_id: str) -> None:
    path = features_path(study.project.store_path("a"), encoder_id) / "zarr.json"
    content = json.loads(path.read_text())
    content["attributes"]["gemslide"]["damaged_tiles"] = 7
    path.write_text(json.dumps(content))


def no_features(study: Study, encoder_id: str) -> None:
    shutil.rmtree(features_path(study.project.store_path("a"), encoder_id))


@pytest.mark.parametrize("tamper", [other_features, edited_file, no_features])
def test_features_that_are_not_the_ledgers_are_found(finished, encoder_id, tamper):
    assert changed(finished) == []
    tamper(finished, encoder_id)
    (finding,) = changed(finished)
    assert finding.startswith(f"slide a, embed {encoder_id}: ")


def change_row(encoders: Path) -> None:
    row = encoders / "tiny.toml"
    row.write_text(row.read_text().replace("Nobody", "Somebody"))


def change_weights(encoders: Path) -> None:
    weights = encoders / "tiny-files/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + bytes([weights.read_bytes()[-1] ^ 1]))


def change_configuration(encoders: Path) -> None:
    config = encoders / "tiny-files/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"note": "another"}))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (change_row, ChangedSourceError, r"tiny\.toml: has a row with SHA-256 .*but the protocol names for tiny-"),
        (change_weights, UnreadableError, r"model\.safetensors.* has the SHA-256"),
        (change_configuration, ChangedSourceError, r"tiny\.toml: is encoder tiny-\w+, but the protocol names tiny-"),
    ],
)
def test_an_encoder_that_changed_since_is_found_and_no_work_goes_on(finished, change, error, words):
    change(finished.project.root / "encoders")

    with pytest.raises(error, match=words):
        work_on(finished)
    assert len(changed(finished)) == 1


def test_features_are_reproduced_from_the_slide_file(finished, encoder_id):
    (same,) = reproduce(finished, ["a"], actor="ada")
    assert same.differs == ()


def test_a_run_that_would_replace_features_that_a_study_relies_on_is_refused(finished, encoder_id, gemslide):
    root = finished.project.root
    before = features_path(finished.project.store_path("a"), encoder_id).stat().st_ino
    kept = gemslide("embed", "tiny", "a", "--devices", "cpu", "--project", root)
    assert (kept.code, "kept: study s relies on it" in kept.out) == (0, True), kept.err
    settings = finished.project.settings_path
    settings.write_text(settings.read_text().replace("0.25", "0.75"))

    refused = gemslide("embed", "tiny", "a", "--devices", "cpu", "--project", root)

    assert refused.code == 1
    assert "study s relies on its output of embed tiny, and this run would replace it" in refused.err
    assert features_path(finished.project.store_path("a"), encoder_id).stat().st_ino == before


def test_the_report_and_an_export_name_the_encoder_its_row_and_the_work(finished, encoder_id, tmp_path):
    (encoder,) = finished.protocol.encoders
    tables = write_report(finished, actor="ada").folder / "tables"
    exported = export_study(
        finished, tmp_path / "out", open_pseudonym_key(tmp_path / "key"), results=(), actor="ada"
    ).folder

    hashes = (tables / "hashes.csv").read_text()
    assert f"encoder,{encoder_id},{encoder.sha256}\n" in hashes
    assert f"encoder's row,{encoder_id},{encoder.row_sha256}\n" in hashes
    assert "embed,min_tissue,0.25\n" in (tables / "settings.csv").read_text()
    assert f"\nembed {encoder_id},2," in (tables / "times.csv").read_text()
    assert json.loads((exported / "study.json").read_text())["encoders"] == [encoder.model_dump()]
    assert '""dims"": 24' in (exported / "tasks.csv").read_text()


def test_a_study_s_encoders_are_not_amended(finished):
    path = finished.folder / "study.toml"
    text = path.read_text()
    path.write_text(text.partition("[[encoders]]")[0] + "[embed]" + text.partition("[embed]")[2])
    assert load_protocol(path).encoders == ()

    with pytest.raises(BadManifestError, match=r"its encoders \(tiny-\w+\) and their hashes cannot be amended"):
        amend(finished, actor="ada", why="test")


def test_other_settings_of_the_embedding_repeat_it_and_what_follows(finished, encoder_id):
    path = finished.folder / "study.toml"
    path.write_text(path.read_text().replace("min_tissue = 0.25", "min_tissue = 0.5"))

    amend(finished, actor="ada", why="test")

    states = [row.state for row in finished.ledger.tasks("s", "a")]
    assert states == ["done", "done", "ready", "blocked"]


def test_a_study_begun_before_studies_had_encoders_goes_on(finished, encoder_id, small_project):
    frozen = json.loads(json.dumps(finished.protocol.frozen()))
    del frozen["encoders"], frozen["embed"]
    stages = ("ingest", "qc", f"infer {small_project.model_id}")
    finished.ledger.begin("earlier", frozen, finished.manifest_sha256, [NewSlide("a")], stages, actor="ada")

    earlier = begun_study(finished.project, "earlier", finished.ledger).protocol

    assert (earlier.encoders, earlier.stages) == ((), stages)


@pytest.mark.parametrize(
    ("encoders", "words"),
    [
        ([{"id": "tiny", "sha256": "0" * 64, "row_sha256": "0" * 64}], r"id"),
        ([{"id": "../up-00000000", "sha256": "0" * 64, "row_sha256": "0" * 64}], r"id"),
        ([{"id": "tiny-00000000", "sha256": "0" * 64, "row_sha256": "0" * 64}] * 2, r"\[\[encoders\]\] names tiny-0"),
    ],
)
def test_encoders_that_cannot_be_or_are_named_twice_are_refused(tmp_path, whole, encoders, words):
    content = load_protocol(whole.root / "studies/s/study.toml").model_dump(mode="json", exclude_none=True)
    (tmp_path / "study.toml").write_text(tomli_w.dumps(content | {"encoders": encoders}))
    with pytest.raises(BadRecipeError, match=words):
        load_protocol(tmp_path / "study.toml")
    assert Protocol.model_validate(content | {"encoders": []}).encoders == ()
