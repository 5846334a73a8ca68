"""The page of a training of a slide-level model: patients instead of tiles, the encoder, and figures of each target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pathology_app.app_pages.runs import slide_level
from pathology_app.app_pages.runs.rows import curves_html, epochs_html, flat
from pathology_app.jobs.curves import Curves, read_curves
from pathology_app.jobs.history import read_run
from pathology_app.jobs.offers import default_recipe, recipes
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pipeline.project import Project
from tests.pathology_app.opened import html_of, linked, open_page, visible_text
from tests.pipeline.slide_level.planted_cohort import ENCODER_ID, SURVIVAL, plant, write_recipe
from tests.small_trained_project import SmallProject
from training.foundation.run_record import is_run_id

pytestmark = pytest.mark.xdist_group("slide_level_runs")


@pytest.fixture(scope="module")
def trained(
    small_project: SmallProject, gemslide: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Project:
    """A project with one training of a slide-level model, and one inference with it."""
    store = small_project.project.store_path(small_project.test_slide)
    project = plant(store, tmp_path_factory.mktemp("planted")).project
    recipe = write_recipe(project.root, "pilot", targets=SURVIVAL, epochs=3)
    done = gemslide("train", recipe, "--project", project.root, "--json")
    assert done.code == 0, done.err
    manifest = project.root / "cohort.csv"
    done = gemslide("infer", model_of(project), manifest, "--project", project.root, "--devices", "cpu", "--json")
    assert done.code == 0, done.err
    return project


@pytest.fixture
def served(trained: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv(PROJECT_VARIABLE, str(trained.root))
    yield trained
    close_study_ledgers()


def record_of(project: Project, verb: str = "train") -> dict[str, Any]:
    records = [json.loads(path.read_text()) for path in project.runs_dir.glob("*.json") if is_run_id(path.stem)]
    (record,) = [record for record in records if record["verb"] == verb]
    return dict(record)


def run_of(project: Project, verb: str = "train") -> str:
    return str(record_of(project, verb)["run_id"])


def model_of(project: Project) -> str:
    return str(record_of(project)["models"]["best"])


def facts_of(project: Project, run_id: str) -> dict[str, str]:
    curves = read_curves(project, run_id)
    training = slide_level.slide_training(read_run(project, run_id), curves)
    assert training
    return slide_level.training_facts(training, curves)


def test_the_page_counts_patients_and_names_the_encoder_and_each_target_s_figures(served: Project) -> None:
    assert linked(open_page(page="runs")) == ["infer", "train"]
    page = open_page(page="runs", run=run_of(served))
    drawn = html_of(page)
    assert f"<span>Encoder</span><strong>{ENCODER_ID}</strong>" in drawn
    assert "<span>Patients</span><strong>8 training, 4 validation, 4 test</strong>" in drawn
    assert "patients/s" in drawn
    assert "<span>Steps done</span><strong>6 of 6</strong>" in drawn
    for heading in ("Loss", "Validation: grade", "Validation: survival", "Validation: size"):
        assert heading in drawn
    assert "grade by step. Last: accuracy" in drawn
    assert "survival by step. Last: concordance" in drawn
    assert "size by step. Last: mean absolute error" in drawn
    for word in ("grade: AUC", "Validation loss", "Concordance", "target.1.name", "data.encoder"):
        assert word in drawn, word
    assert "tiles/s" not in drawn
    captions = [visible_text(caption) for caption in page.caption]
    assert any("Research use only" in text and "optimistic" in text for text in captions)


def test_the_figures_shown_are_those_of_the_epoch_that_became_the_best_model(served: Project) -> None:
    record = record_of(served)
    best = min(record["epochs"], key=lambda epoch: float(epoch["loss"]))
    curves = read_curves(served, record["run_id"])
    assert curves
    drawn = slide_level.best_epoch_html(curves)
    assert f"number {best['epoch']}" in drawn
    for tag in ("grade: accuracy", "survival: concordance", "size: mean absolute error"):
        assert f"{best[tag]:.4g}" in drawn


def test_a_run_in_progress_states_its_data_before_it_has_a_record(served: Project, tmp_path: Path) -> None:
    run_id = run_of(served)
    events = served.runs_dir / "tensorboard" / run_id
    copied = tmp_path / "runs" / "tensorboard" / run_id
    copied.parent.mkdir(parents=True)
    events.rename(copied)
    try:
        job = {"outcome": "running", "verb": "train"}
        (tmp_path / "runs" / f"{run_id}.json").write_text(json.dumps(job))
        assert facts_of(Project(tmp_path), run_id)["Patients"] == "8 training, 4 validation, 4 test"
        facts = facts_of(served, run_id)
        assert (facts["Encoder"], "Rate" in facts) == ("planted", False), "as in the recipe, without curves"
    finally:
        copied.rename(events)


def test_the_record_states_the_unit_and_how_many_each_split_has(served: Project) -> None:
    record = record_of(served)
    assert (record["unit"], record["units"]) == ("patient", {"train": 8, "val": 4, "test": 4})
    assert record["inputs"][0]["id"] == ENCODER_ID


def test_an_inference_of_patients_lists_patients_which_have_no_page(served: Project) -> None:
    page = open_page(page="runs", run=run_of(served, "infer"))
    drawn = html_of(page)
    assert "<span>Patients done</span><strong>16 of 16</strong>" in drawn
    assert ">Patients</h5>" in drawn
    assert "P-00" in drawn
    assert linked(page) == []
    assert record_of(served, "infer")["unit"] == "patient"


def test_a_slide_level_recipe_is_offered_first_where_its_manifest_is_there(served: Project, tmp_path: Path) -> None:
    assert default_recipe(served, list(recipes(served))) == "pilot.toml"
    write_recipe(tmp_path, "pilot")
    assert default_recipe(Project(tmp_path), list(recipes(Project(tmp_path)))) is None


def test_a_training_on_tiles_is_shown_as_before() -> None:
    curves = Curves({"val/balanced_accuracy": [(4, 0.5)], "val/loss": [(4, 0.5)], "train/tiles_per_s": [(0, 9.0)]})
    assert list(curves_html(curves)) == ["Loss", "Validation"]
    assert "Validation balanced accuracy" in epochs_html(curves)
    assert slide_level.best_epoch_html(curves) == ""


@pytest.mark.parametrize("target", ["<script>x</script>", "a: b", "Größe mm", "x" * 300])
def test_any_target_s_name_is_text(target: str) -> None:
    curves = Curves({"val/loss": [(4, 0.5)], f"val/{target}: auc": [(4, 0.75)]})
    drawn = "".join([*curves_html(curves).values(), epochs_html(curves), slide_level.best_epoch_html(curves)])
    assert "<script>" not in drawn
    assert "0.75" in drawn


def test_only_the_first_targets_are_drawn_and_all_are_in_the_table() -> None:
    tags = {f"val/t{number:02}: concordance": [(1, number / 30)] for number in range(30)}
    curves = Curves({"val/loss": [(1, 0.5)], **tags})
    assert len(slide_level.target_charts(curves)) == slide_level.MAX_CHARTS
    assert slide_level.best_epoch_html(curves).count("<tr") == 1 + 30


def test_tables_in_a_list_of_settings_are_rows_of_their_own() -> None:
    settings = {"target": [{"name": "grade", "kind": "class"}, {"name": "size"}], "cuts": [1, 2]}
    assert flat(settings) == [
        ("target.1.name", "grade"), ("target.1.kind", "class"), ("target.2.name", "size"), ("cuts", "[1, 2]"),
    ]  # fmt: skip
