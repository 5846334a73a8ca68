"""Evaluation of slide-level models, from features in the stores to a report per patient."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import LeakageError
from pipeline.evaluation.slide_level.chosen import choose_units
from pipeline.evaluation.statistics.delong import delong_auc
from pipeline.evaluation.statistics.one_class import auroc
from pipeline.evaluation.statistics.ordered import mean_absolute_error, r_squared
from pipeline.evaluation.statistics.survival.concordance import harrells_c
from pipeline.slide_level.model import SlideModel
from pipeline.store.format.plain_array import write_array
from pipeline.store.layers.features import features_path, new_features, read_features
from tests.pipeline.slide_level.planted_cohort import ENCODER_ID, SURVIVAL, plant, write_recipe
from training.foundation.words.unit_digest import unit_digest

TESTED = [f"P-{number}" for number in range(10, 16)]
ORDINAL = """[[target]]
name = "stage"
columns = ["stage"]
kind = "ordinal"
classes = ["I", "II", "III"]
"""


@pytest.fixture(scope="module")
def gemslide_in_module():
    from tests.conftest import gemslide

    return gemslide.__wrapped__()


@pytest.fixture(scope="module")
def planted(small_project, tmp_path_factory):
    """Ten patients to train and choose, six to test; covariates and grades beside the planted targets."""
    planted = plant(small_project.project.store_path(small_project.test_slide), tmp_path_factory.mktemp("planted"))
    lines = planted.manifest.read_text().splitlines()
    moved = [re.sub(",val$", ",test", line) if re.search("P-1[01]", line) else line for line in lines]
    planted.manifest.write_text("\n".join(moved) + "\n")
    header, *rows = planted.table.read_text().splitlines()
    more = [f"{'' if n == 3 else 40 + n % 7},{'xyz'[n % 3]},{'I' * (1 + n % 3)}" for n in range(len(rows))]
    planted.table.write_text(
        "\n".join([f"{header},age,centre,stage", *(f"{a},{b}" for a, b in zip(rows, more, strict=True))]) + "\n"
    )
    (planted.project.root / "gemslide.toml").write_text("[evaluate]\nbootstrap = 100\n")
    return planted


@pytest.fixture(scope="module")
def trained(planted, gemslide_in_module):
    return train(planted, gemslide_in_module, "slides", epochs=12)


def train(planted, gemslide, name, **changes) -> str:
    recipe = write_recipe(planted.project.root, name, targets=SURVIVAL + ORDINAL, **changes)
    done = gemslide("train", recipe, "--project", planted.project.root, "--json")
    assert done.code == 0, done.err
    message = json.loads(done.out.splitlines()[-1])["message"]
    return re.search(r"best(?: model)? (\S+?-[0-9a-f]{8})", message)[1]


@pytest.fixture(scope="module")
def evaluated(planted, trained, gemslide_in_module):
    done = evaluate(planted, gemslide_in_module, trained, "--covariates", "age, centre", "--json")
    assert done.code == 0, done.err
    return done


def evaluate(planted, gemslide, model, *options, manifest=None):
    root = planted.project.root
    return gemslide(
        "evaluate", model, manifest or planted.manifest, "--project", root, "--table", planted.table, *options
    )


def folder_of(planted, model, name="evaluation-slides"):
    return planted.project.model_results_dir(model) / name


def units_in(folder):
    with (folder / "units.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def target_in(folder, name):
    content = json.loads((folder / "evaluation.json").read_text())
    return next(target for target in content["targets"] if target["name"] == name)


def column(rows, name):
    return np.array([float(row[name]) for row in rows])


def test_figures_are_those_of_the_statistics_on_the_exported_units(planted, trained, evaluated):
    folder = folder_of(planted, trained)
    rows = units_in(folder)
    assert [row["unit"] for row in rows] == TESTED
    assert {row["model"] for row in rows} == {trained}

    grade = target_in(folder, "grade")["methods"][0]
    truth, score = np.array([row["grade: truth"] == "b" for row in rows]), column(rows, "grade: probability of b")
    assert grade["measures"]["AUROC"]["value"] == auroc(truth, score)
    assert grade["delong"]["auc"] == delong_auc(truth, score).auc
    right = np.mean([row["grade: truth"] == row["grade: prediction"] for row in rows])
    assert grade["measures"]["accuracy"]["value"] == right

    survival = target_in(folder, "survival")["methods"][0]["measures"]
    events = column(rows, "survival: event") == 1
    c = harrells_c(column(rows, "survival: time"), events, column(rows, "survival: risk"))
    assert survival["Harrell's C"]["value"] == c.value
    assert survival["Harrell's C"]["low"] is None or survival["Harrell's C"]["low"] <= c.value

    size = target_in(folder, "size")["methods"][0]["measures"]
    sizes = column(rows, "size: truth"), column(rows, "size: prediction")
    assert size["R²"]["value"] == r_squared(*sizes)
    assert size["mean absolute error"]["value"] == mean_absolute_error(*sizes)
    slope = np.polyfit(sizes[1], sizes[0], 1)[0]
    assert size["calibration slope"]["value"] == pytest.approx(slope, rel=1e-6)

    from sklearn.metrics import cohen_kappa_score

    stages = [[row[f"stage: {what}"] for row in rows] for what in ("truth", "prediction")]
    kappa = cohen_kappa_score(*stages, labels=["I", "II", "III"], weights="quadratic")
    assert target_in(folder, "stage")["methods"][0]["measures"]["quadratic kappa"]["value"] == pytest.approx(kappa)


def test_the_model_stands_beside_simpler_ones_with_differences_in_the_same_resamples(planted, trained, evaluated):
    for name, measure in (
        ("grade", "AUROC"),
        ("survival", "Harrell's C"),
        ("size", "R²"),
        ("stage", "quadratic kappa"),
    ):
        target = target_in(folder_of(planted, trained), name)
        model, mean_pool, clinical, untrained = target["methods"]
        assert mean_pool["measures"][measure]["value"] is not None
        assert clinical["measures"][measure]["value"] is not None
        assert untrained["why_not"] == (
            "not available: `gemslide encoder add planted --untrained`, then embed with planted-untrained"
        )
        assert [lead["against"] for lead in target["leads"]] == [mean_pool["name"], clinical["name"]]
        for lead, other in zip(target["leads"], (mean_pool, clinical), strict=True):
            ours, theirs = (side["measures"][measure]["value"] for side in (model, other))
            assert lead["difference"]["value"] == pytest.approx(ours - theirs)

    line = json.loads(evaluated.out.splitlines()[-1])
    assert line["status"] == "done"
    assert line["metrics"]["grade"]["this model"]["AUROC"] == 1.0
    assert line["metrics"]["grade"]["clinical columns alone"]["AUROC"] < 1.0


def test_the_report_shows_the_attended_tiles_and_asks_nothing_of_the_network(planted, trained, evaluated):
    folder = folder_of(planted, trained)
    html = (folder / "report.html").read_text()

    assert html.count("Research use only. Not for diagnosis.") == 2
    assert not re.search(r"(src|href)=\"(?!data:|#)", html)
    assert "6 patients: below 20" in html
    for target in json.loads((folder / "evaluation.json").read_text())["targets"]:
        assert 0 < len(target["wrong"]) <= 5
        errors = [unit["error"] for unit in target["wrong"]]
        assert errors == sorted(errors, reverse=True)
        assert all(len(unit["tiles"]) == 6 for unit in target["wrong"])
    marked = {unit["unit"]: unit["tiles"][0] for unit in target_in(folder, "grade")["wrong"]}
    for patient in set(marked) & set(TESTED[1::2]):  # class b: one tile decides
        slide = f"S-{patient[2:]}-0"
        stored = read_features(planted.project.store_path(slide), ENCODER_ID)
        x, y = stored.xy0_n2[planted.marked[slide]].tolist()
        assert (marked[patient]["slide_id"], marked[patient]["x_px0"], marked[patient]["y_px0"]) == (slide, x, y)


def test_an_untrained_encoder_s_features_are_compared_once_they_are_there(planted, trained, gemslide):
    other = "planted-untrained-89abcdef"
    stores = [planted.project.store_path(slide) for slide in planted.marked]
    for store in stores:
        features = read_features(store, ENCODER_ID)
        made_from = {**features.attributes["made_from"], "encoder": {"encoder_id": other, "weights_sha256": "d" * 64}}
        attributes = {**features.attributes, "weights_sha256": "d" * 64, "made_from": made_from}
        values = features.values_nd[:, ::-1].copy()
        with new_features(store, replace(features, encoder_id=other, values_nd=values, attributes=attributes)):
            pass
    try:
        done = evaluate(planted, gemslide, trained, "--split", "train")
        assert done.code == 0, done.err
        found = target_in(folder_of(planted, trained, "evaluation-slides-train"), "survival")["methods"][3]
        assert found["why_not"] is None
        assert found["measures"]["Harrell's C"]["value"] > 0.5
        assert "the results say nothing about new ones" in done.err
    finally:
        for store in stores:
            shutil.rmtree(features_path(store, other))


def test_a_leaked_patient_is_refused(planted, trained, gemslide):
    leaking = planted.project.root / "leaking.csv"
    leaking.write_text(planted.manifest.read_text().replace(",P-15,", ",P-00,"))
    done = evaluate(planted, gemslide, trained, manifest=leaking)

    assert done.code == 1
    assert "[leakage]" in done.err
    assert "P-00" in done.err


def test_shuffled_positions_of_tiles_are_noticed(planted, trained, gemslide, tmp_path):
    store = planted.project.store_path("S-12-0")
    folder = features_path(store, ENCODER_ID)
    features = read_features(store, ENCODER_ID)
    shutil.copytree(folder, tmp_path / "kept")
    shutil.rmtree(folder / "xy0")
    rolled = np.roll(features.xy0_n2, 1, axis=0)
    write_array(folder / "xy0", rolled, ("tile", "xy"), fill_value=0, chunk_shape=(len(rolled), 2))
    try:
        done = evaluate(planted, gemslide, trained)
    finally:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", folder)

    assert done.code == 1
    assert "SHA-256" in done.err
    assert "S-12-0" in done.err


def test_units_without_features_are_named_and_counted(planted, trained, gemslide, tmp_path):
    folder = features_path(planted.project.store_path("S-14-0"), ENCODER_ID)
    shutil.move(folder, tmp_path / "kept")
    try:
        done = evaluate(planted, gemslide, trained, "--no-baselines")
    finally:
        shutil.move(tmp_path / "kept", folder)

    assert done.code == 0, done.err
    assert f"1 tested patient has no features of {ENCODER_ID} and is left out: P-14." in " ".join(done.err.split())
    assert re.search(r"grade, 5 patients +this model\nAUROC +1\.000 \(", done.out)
    content = json.loads((folder_of(planted, trained) / "evaluation.json").read_text())
    assert (content["tested"], content["without_features"]) == (5, ["P-14"])
    assert [method["name"] for method in content["targets"][0]["methods"]] == ["this model"]


def test_slides_without_features_of_a_patient_with_others_are_named(planted, trained, gemslide, tmp_path):
    folder = features_path(planted.project.store_path("S-00-1"), ENCODER_ID)
    shutil.move(folder, tmp_path / "kept")
    try:
        done = evaluate(planted, gemslide, trained, "--no-baselines", "--split", "train")
    finally:
        shutil.move(tmp_path / "kept", folder)

    assert done.code == 0, done.err
    said = f"1 slide has no features of {ENCODER_ID} and is left out; the patients' other slides are used: S-00-1."
    assert said in " ".join(done.err.split())
    content = json.loads((folder_of(planted, trained, "evaluation-slides-train") / "evaluation.json").read_text())
    assert (content["without_features"], content["slides_left_out"]) == ([], ["S-00-1"])
    assert "S-00-1" in (folder_of(planted, trained, "evaluation-slides-train") / "report.html").read_text()


def test_patients_with_a_time_but_no_event_are_named(planted, trained, gemslide, tmp_path):
    table = tmp_path / "clinical.csv"
    lines = planted.table.read_text().splitlines()
    column = lines[0].split(",").index("died")
    cells = [line.split(",") for line in lines]
    for cell in cells:
        if cell[0] in ("P-12", "P-13"):
            cell[column] = ""
    table.write_text("\n".join(map(",".join, cells)) + "\n")
    root = planted.project.root
    done = gemslide("evaluate", trained, planted.manifest, "--project", root, "--table", table, "--no-baselines")

    assert done.code == 0, done.err
    said = "P-12, P-13 have only one of `months` and `died` and are left out of 'survival'."
    assert said in " ".join(done.err.split())


def digests(names) -> list[str]:
    return [unit_digest(name) for name in names]


def second_fold(planted, trained, tested) -> str:
    """A package of slightly other weights that says that it was tested on other patients."""
    package = planted.project.model_path(trained)
    config = json.loads((package / "config.json").read_text())
    weights = save(
        {name: tensor * np.float32(0.9) for name, tensor in load_file(package / "model.safetensors").items()}
    )
    sha256 = hashlib.sha256(weights).hexdigest()
    others = [patient for patient in planted.patients if patient not in tested]
    config["gemslide"] |= {"weights_sha256": sha256, "test_units": digests(tested), "trained_units": digests(others)}
    copy = planted.project.model_path(f"slides-{sha256[:8]}")
    shutil.copytree(package, copy)
    (copy / "model.safetensors").write_bytes(weights)
    (copy / "config.json").write_text(json.dumps(config))
    return copy.name


def test_models_of_two_folds_are_pooled_and_a_unit_counts_once(planted, trained, gemslide):
    tested = planted.patients[:6]
    second = second_fold(planted, trained, tested)
    plain = planted.project.root / "without_split.csv"
    plain.write_text(re.sub(r",(train|val|test|split)\n", "\n", planted.manifest.read_text()))

    pooled = evaluate(planted, gemslide, f"{trained},{second}", "--no-baselines", manifest=plain)
    assert pooled.code == 0, pooled.err
    folder = folder_of(planted, trained, "evaluation-slides-2-folds")
    rows = units_in(folder)
    assert sorted(row["unit"] for row in rows) == [*tested, *TESTED]
    survival = target_in(folder, "survival")
    assert set(survival["per_model"]) == {trained, second}
    own = [row for row in rows if row["model"] == second]
    arguments = column(own, "survival: time"), column(own, "survival: event") == 1, column(own, "survival: risk")
    assert survival["per_model"][second]["Harrell's C"]["value"] == harrells_c(*arguments).value
    assert "median risk in training counts as 0" in " ".join(pooled.err.split())

    overlapping = second_fold(planted, second, TESTED[3:])
    twice = evaluate(planted, gemslide, f"{trained},{overlapping}", manifest=plain)
    assert twice.code == 1
    assert "P-13 would count twice" in twice.err


def test_slides_of_a_patient_who_trained_the_model_are_refused(planted, trained):
    model = SlideModel.load(planted.project.model_path(trained))
    trained_units = digests(["S-00-0", "S-01-0"])
    units = {"trained_units": trained_units, "test_units": digests(["S-00-1", "S-15-0"]), "level": "slide"}
    cohort = load_cohort(planted.manifest)

    with pytest.raises(LeakageError, match="shares the patient with one that did: S-00-1"):
        choose_units(replace(model, config=model.config.model_copy(update=units)), cohort, "test")
    units["test_units"] = digests(["S-14-0", "S-15-0"])
    chosen = choose_units(replace(model, config=model.config.model_copy(update=units)), cohort, "test")
    assert (chosen.tested, chosen.trained, chosen.others) == (("S-14-0", "S-15-0"), ("S-00-0", "S-01-0"), 13)


def test_a_new_cohort_is_evaluated_whole_and_one_of_training_patients_only_is_refused(planted, trained):
    model = SlideModel.load(planted.project.model_path(trained))
    cohort = load_cohort(planted.manifest)
    elsewhere = {"trained_units": digests(["X-1"]), "test_units": digests(["X-2"])}
    chosen = choose_units(replace(model, config=model.config.model_copy(update=elsewhere)), cohort, "test")
    assert chosen.is_new_cohort
    assert chosen.tested == planted.patients

    without = {"trained_units": digests(["P-03"]), "test_units": digests(["X-2"])}
    with pytest.raises(LeakageError, match="that it was trained on, such as P-03"):
        choose_units(replace(model, config=model.config.model_copy(update=without)), cohort, "test")


def test_options_that_do_not_fit_are_refused(planted, trained, gemslide, small_project):
    root = planted.project.root
    without = gemslide("evaluate", trained, "--project", root)
    known = evaluate(planted, gemslide, trained, "--covariates", "months")
    against = evaluate(planted, gemslide, trained, "--against", trained)
    tiles = gemslide(
        "evaluate", small_project.model_id, "--table", planted.table, "--project", small_project.project.root
    )
    for done, text in ((without, "Name the manifest"), (known, "would know the answer"), (against, "Leave it out"),
                       (tiles, "are for slide-level models")):  # fmt: skip
        assert done.code == 1
        assert text in " ".join(done.err.split())
