"""A whole study of several slides and patients, with the manifest, against another model, in every file."""

import csv
import dataclasses
import json
import re

import numpy as np
import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadAnnotationError, BadManifestError
from pipeline.evaluation.camelyon_files import read_candidates
from pipeline.evaluation.evaluate import LEAD, MEAN_COLOUR, THE_MODEL, evaluate_model
from pipeline.evaluation.report import write_report
from pipeline.evaluation.statistics.bootstrap import Estimate
from pipeline.evaluation.statistics.froc import hit_slide
from pipeline.settings.config import EvaluateConfig
from pipeline.store.layers.overlays import Predictions, read_predictions, write_predictions
from pipeline.tiles.table import read_table, write_table
from tests.pipeline.evaluation.several_slides import MIDDLE, NUM_SLIDES, WARM_SLIDES, make_study, slide_id
from tests.small_trained_project import MPP0, SIZE_WH_PX0
from training.foundation.errors import BadRecipeError
from training.foundation.settings import parse_section

pytestmark = pytest.mark.xdist_group("evaluation")
CONFIG = EvaluateConfig(bootstrap=200)


@pytest.fixture(scope="module")
def study(small_project, tmp_path_factory):
    return make_study(small_project, tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def evaluation(study):
    cohort = load_cohort(study.manifest)
    return evaluate_model(study.project, study.model_id, "tiles", CONFIG, cohort=cohort, against=study.other_id)


@pytest.fixture(scope="module")
def report(study, evaluation):
    return write_report(study.project, evaluation)


def stored(study, number):
    return read_predictions(study.project.store_path(slide_id(number)), study.model_id)


def test_the_slide_level_auc_is_that_worked_out_from_the_stored_predictions(study, evaluation):
    highest = [float(np.nanmax(stored(study, n).probabilities_cyx[1].astype(float))) for n in range(NUM_SLIDES)]
    # A pair of slides with and without a lesion scores one in the right order, and a half if tied.
    pairs = [(highest[i] > highest[j]) + 0.5 * (highest[i] == highest[j]) for i in range(6) for j in range(6, 10)]
    tile, slide, patient = evaluation.levels

    (warm,) = slide.classes
    assert (slide.items, slide.patients, warm.positives, warm.negatives) == (10, 8, 6, 4)
    assert warm.measures["AUROC"].value == pytest.approx(sum(pairs) / 24)
    assert slide.confusion.sum() == 10
    assert (patient.items, patient.classes[0].positives) == (8, 6)
    assert tile.classes[0].measures["AUROC"].low < tile.classes[0].measures["AUROC"].value
    assert tile.patients == 8


def test_peaks_that_lie_apart_in_one_area_are_candidates_when_asked_for(study, evaluation):
    config = CONFIG.model_copy(update={"candidate_min_distance_um": 60.0, "bootstrap": 0})
    cohort = load_cohort(study.manifest)
    apart = evaluate_model(study.project, study.model_id, "tiles", config, baselines=None, cohort=cohort)

    assert apart.froc[0].candidates > evaluation.froc[0].candidates
    assert apart.froc[0].lesions == evaluation.froc[0].lesions


def test_every_slide_and_tile_is_accounted_for(evaluation):
    flow = evaluation.flow

    assert (flow.slides, flow.evaluated_slides, flow.slides_with_truth, flow.patients) == (10, 10, 10, 8)
    assert flow.labelled_tiles == sum(flow.labelled_by_class.values()) == evaluation.by_method[THE_MODEL]["tiles"]
    assert sum(row["tiles"] for row in evaluation.by_slide) == flow.labelled_tiles
    assert sum(row["tiles"] for row in evaluation.by_patient) == flow.labelled_tiles
    assert sum(row["tiles"] for row in evaluation.by_scanner) == flow.labelled_tiles
    assert [row["truth"] for row in evaluation.by_slide] == [["cold", "warm"]] * 6 + [["cold"]] * 4


def test_lesions_are_the_outlines_and_candidates_the_peaks_of_connected_cells(study, evaluation):
    (froc,) = evaluation.froc

    assert (froc.class_name, froc.slides, froc.lesions, froc.isolated) == ("warm", 10, 6, 0)
    points = evaluation.detections["warm"].candidates
    assert sum(len(candidates) for candidates in points.values()) == froc.candidates
    best = max(points[slide_id(0)].tolist())
    values = stored(study, 0).probabilities_cyx[1].astype(float)
    row, column = np.unravel_index(np.nanargmax(values), values.shape)
    assert best == [pytest.approx(values.max(), abs=1e-3), column * 64 + 32, row * 64 + 32]
    assert column < MIDDLE
    assert hit_slide("s", "p", points[slide_id(9)], None).num_lesions == 0


def test_camelyon16_s_files_hold_every_slide_and_are_read_back(study, evaluation, report):
    folder = report.with_name(f"{report.stem}_camelyon16") / "warm"
    files = sorted((folder / "candidates").iterdir())
    assert [file.stem for file in files] == sorted(slide_id(n) for n in range(NUM_SLIDES))
    lines = (folder / "slides.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == ("image_name,probability", 11)

    (study.project.root / "given").mkdir()
    for file in files:
        (study.project.root / "given" / file.name).write_bytes(file.read_bytes())
    given = CONFIG.model_copy(update={"candidates": "given"})
    again = evaluate_model(
        study.project, study.model_id, "tiles", given, cohort=load_cohort(study.manifest), baselines=None
    )
    assert again.froc[0].sensitivities == evaluation.froc[0].sensitivities
    assert len(read_candidates(files[0], SIZE_WH_PX0)) == len(evaluation.detections["warm"].candidates[files[0].stem])


def test_two_models_are_compared_in_the_same_resamples_and_by_delong_where_cases_are_independent(evaluation):
    by_level = {difference.level: difference for difference in evaluation.differences}

    assert set(by_level) == {"tile", "slide", "patient"}
    assert by_level["tile"].delong is None
    assert by_level["tile"].bootstrap.value == pytest.approx(by_level["tile"].first - by_level["tile"].second)
    assert by_level["tile"].bootstrap.low > 0
    assert by_level["slide"].delong.cases == 10
    assert by_level["patient"].delong.difference == pytest.approx(by_level["patient"].bootstrap.value)


def test_a_baseline_that_colour_explains_is_explained(evaluation):
    """The two kinds of tissue differ in colour: three numbers per tile tell them apart on the outlined slides."""
    lead = evaluation.methods[MEAN_COLOUR][LEAD]
    own, other = (evaluation.methods[name]["AUROC"].value for name in (THE_MODEL, MEAN_COLOUR))

    assert lead.value == pytest.approx(own - other)
    assert lead.low <= lead.value <= lead.high


def test_the_table_has_a_row_per_measure_with_its_interval_and_numbers_of_cases(report, evaluation):
    rows = list(csv.DictReader(report.with_suffix(".csv").read_text().splitlines()))
    auc = {(row["level"], row["interval"]): row for row in rows if row["measure"] == "AUROC" and row["class"] == "warm"}

    measured = evaluation.levels[1].classes[0].measures["AUROC"]
    slide = auc["slide", "bootstrap by patient"]
    assert (float(slide["value"]), float(slide["low"]), float(slide["high"])) == (
        measured.value, measured.low, measured.high,
    )  # fmt: skip
    assert (slide["n"], slide["patients"]) == ("10", "8")
    assert auc["patient", "DeLong"]["n"] == "8"
    assert {row["level"] for row in rows} == {"tile", "slide", "patient", "lesion"}
    assert any(row["measure"] == "FROC score (CAMELYON16)" for row in rows)
    assert any(row["method"] == f"this model minus {evaluation.against}" for row in rows)


def test_the_json_is_strict_and_says_all_that_the_page_says(report):
    content = json.loads(report.with_suffix(".json").read_text(), parse_constant=lambda word: pytest.fail(word))

    assert content["research_use"] == "Research use only. Not for diagnosis."
    assert content["levels"][1]["classes"][0]["measures"]["AUROC"]["resamples"] > 150
    assert content["froc"][0]["lesions"] == 6
    assert content["flow"]["evaluated_patients"] == 8
    assert "detections" not in content


def test_the_page_shows_every_part_and_asks_nothing_of_the_network(report):
    html = report.read_text()

    for words in (
        "Research use only. Not for diagnosis.", "Evaluated patients, slides and tiles", "drawn with replacement",
        "Tiles", "Slides", "Patients", "Confusion matrix", "Calibration and decisions", "By scanner",
        "By patient", "Lesions (FROC as in CAMELYON16)", "By slide", "Against worse-", "below 20, percentile intervals",
        "was not trained on this tile set and split",
    ):  # fmt: skip
        assert words in html, words
    assert html.count("<svg") == 2 * 3 + 2 * 3 + 1
    without_images = re.sub(r"base64,[A-Za-z0-9+/=]+", "", html).replace("http://www.w3.org", "")
    assert "http" not in without_images
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL).lower().split()


def test_labels_of_lymph_nodes_are_staged(study):
    labels = dict(enumerate(["macro", "micro", "itc", "micro", "itc", "macro", *["negative"] * 4]))
    header, train, *rows = study.manifest.read_text().splitlines()
    text = "\n".join([f"{header},label", f"{train},", *(f"{row},{labels[n]}" for n, row in enumerate(rows))])
    manifest = study.manifest.with_name("nodes.csv")
    manifest.write_text(text + "\n")

    result = evaluate_model(
        study.project, study.model_id, "tiles", CONFIG, cohort=load_cohort(manifest), baselines=None
    )

    assert [stage for _, stage, _ in result.staging.patients] == [
        "pN1", "pN1mi", "pN0(i+)", "pN1mi", "pN0(i+)", "pN1", "pN0", "pN0",
    ]  # fmt: skip
    assert result.levels[1].classes[0].positives == 6
    assert "Patient stages (CAMELYON17)" in write_report(study.project, result).read_text()


def changed_manifest(study, name, change):
    """Write the manifest with a column `label`; `change` maps (annotations, label, patient) per slide number."""
    rows = list(csv.DictReader(study.manifest.read_text().splitlines()))
    for number, row in enumerate(rows[1:]):
        row["annotations"], row["label"], row["patient_id"] = change(number, row["annotations"], row["patient_id"])
    manifest = study.manifest.with_name(name)
    with manifest.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [*rows[1]])
        writer.writeheader()
        writer.writerows({**row, "label": row.get("label", "")} for row in rows)
    return load_cohort(manifest)


def test_a_label_alone_makes_a_slide_negative_but_no_lesion_is_guessed(study, evaluation):
    labels = {0: "hot", 1: "warm", 6: "cold", 7: "cold", 8: "cold"}

    def change(number, annotations, patient):
        return ("" if number in labels or number == 9 else annotations), labels.get(number, ""), patient

    cohort = changed_manifest(study, "labels.csv", change)
    result = evaluate_model(study.project, study.model_id, "tiles", CONFIG, cohort=cohort, baselines=None)

    left_out = dict(result.flow.left_out)
    assert left_out == {
        "slide-0": "the whole slide has no label: its label 'hot' is not one of the model's classes",
    }
    # slide-1 is positive without an outline; slide-9 has neither label nor outlines, but tiles that are all "cold"
    assert result.levels[1].classes[0].positives == WARM_SLIDES - 1
    (froc,) = result.froc
    assert (froc.slides, froc.lesions) == (NUM_SLIDES - 3, WARM_SLIDES - 2)
    assert set(result.without_lesions["warm"]) == {"slide-1"}
    assert "none is outlined" in write_report(study.project, result).read_text()


def test_slides_without_a_patient_are_patients_of_their_own_and_the_report_says_so(study):
    """`gemslide tile` requires a patient for every slide of a split; a table made otherwise may lack some."""
    table = read_table(study.project.tile_table_path("tiles"))
    nameless = table.frame["slide_id"].isin([slide_id(n) for n in (7, 8, 9)])
    frame = table.frame.assign(patient_id=table.frame["patient_id"].mask(nameless, None))
    write_table(study.project.tile_table_path("nameless"), dataclasses.replace(table, frame=frame))

    result = evaluate_model(study.project, study.model_id, "nameless", CONFIG, baselines=None)

    assert (result.flow.evaluated_patients, result.flow.own_patients) == (10, 3)
    html = write_report(study.project, result).read_text()
    assert "3 of the slides have no patient" in html
    assert "Each patient has one slide" in html
    assert "Not evaluated: no outlined lesions are known" in html


def test_cells_merged_from_overlapping_squares_are_averaged_over_each_tile(study, evaluation):
    """A tile of 64 px holds four cells of 32 px, and its score is their mean."""
    merged_id = f"merged-{study.model_id.rpartition('-')[2]}"
    study.project.model_path(merged_id).symlink_to(study.project.model_path(study.model_id))
    random = np.random.default_rng(0)
    for number in range(NUM_SLIDES):
        fine = stored(study, number).probabilities_cyx.repeat(2, 1).repeat(2, 2).astype(np.float64)
        shift = np.tile(random.uniform(-0.05, 0.05) * np.array([[1, -1], [-1, 1]]), np.array(fine.shape[1:]) // 2)
        warm = np.clip(fine[1] + np.where((fine[1] > 0.05) & (fine[1] < 0.95), shift, 0), 0, 1)
        values = np.stack([1 - warm, warm]).astype(np.float16)
        predictions = Predictions(merged_id, ("cold", "warm"), values, 32.0, 32.0, {})
        write_predictions(study.project.store_path(slide_id(number)), predictions, mpp0=MPP0)

    result = evaluate_model(study.project, merged_id, "tiles", CONFIG, baselines=None)

    assert result.by_method[THE_MODEL]["auc"] == pytest.approx(evaluation.by_method[THE_MODEL]["auc"], abs=2e-3)
    assert result.by_method[THE_MODEL]["tiles"] == evaluation.by_method[THE_MODEL]["tiles"]


def test_a_manifest_or_outline_that_is_not_the_tile_set_s_is_refused(study):
    def evaluate(text):
        manifest = study.manifest.with_name("changed.csv")
        manifest.write_text(text)
        evaluate_model(study.project, study.model_id, "tiles", CONFIG, cohort=load_cohort(manifest), baselines=None)

    text = study.manifest.read_text()
    with pytest.raises(BadManifestError, match="slide slide-0 is of another patient than in the tile set"):
        evaluate(text.replace("slide-0,patient-0", "slide-0,patient-9"))
    with pytest.raises(BadManifestError, match=r"has no slide slide-9, which is in the tile set"):
        evaluate("\n".join(text.splitlines()[:-1]))
    with pytest.raises(BadAnnotationError, match="is not the file that the tile set was made from"):
        evaluate(text.replace("slide-0.geojson", "slide-9.geojson"))


def test_settings_that_do_not_fit_the_model_are_refused(study):
    def evaluate(**changes):
        config = CONFIG.model_copy(update=changes)
        evaluate_model(study.project, study.model_id, "tiles", config, baselines=None)

    with pytest.raises(BadRecipeError, match=r"lesion_classes: \['hot'\] are not among the model's classes"):
        evaluate(lesion_classes=("hot",))
    for folder in ("/etc", "../given"):
        with pytest.raises(BadRecipeError, match="name a folder inside the project"):
            parse_section(EvaluateConfig, {"candidates": folder}, where="gemslide.toml")
    with pytest.raises(BadRecipeError, match="the files do not say to which of the classes"):
        evaluate(lesion_classes=("cold", "warm"), candidates="given")


def test_the_command_takes_the_manifest_and_a_second_model(study, gemslide):
    done = gemslide(
        "evaluate", study.model_id, study.manifest, "--project", study.project.root, "--against", study.other_id,
        "--no-baselines",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert re.search(r"^10 slides: warm: AUROC \d\.\d{3}", done.out, re.M)
    assert re.search(r"^6 lesions of warm: FROC score \d\.\d{3} \(\d\.\d{3}–\d\.\d{3}\)", done.out, re.M)
    assert re.search(rf"^against {study.other_id}, tiles, warm: AUROC difference", done.out, re.M)
    missing = gemslide("evaluate", study.model_id, "--project", study.project.root, "--against", "nobody")
    assert missing.code == 1
    assert "nobody: no such model" in missing.err


def test_a_page_without_intervals_says_why(study, evaluation):
    few = dataclasses.replace(
        evaluation,
        flow=dataclasses.replace(evaluation.flow, evaluated_patients=2),
        methods={THE_MODEL: {name: Estimate(0.5) for name in evaluation.methods[THE_MODEL]}},
        model_id="few",
    )

    html = write_report(study.project, few).read_text()

    assert "intervals by patient need at least 5, so there are none" in html
