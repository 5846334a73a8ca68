"""Verdicts of a report: exact intervals, cases instead of slides, measured days, kappa of grades."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import beta
from sklearn.metrics import cohen_kappa_score

from pipeline.evaluation.statistics.agreement import cohens_kappa, concordance, mean_kappa
from pipeline.evaluation.statistics.bootstrap import Draws
from pipeline.study.new_protocol import TEMPLATES
from pipeline.study.protocol import Endpoint, Protocol
from pipeline.study.reading import readings as readings_module
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.questions import Question
from pipeline.study.reading.readings import Readings
from pipeline.study.report.cases import Cases
from pipeline.study.report.endpoints import result_of
from pipeline.study.report.facts import gather
from pipeline.study.report.readers import reader_tables
from pipeline.study.work.study import Study
from tests.pipeline.study.test_study_report import MODEL, begun, protocol

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
DRAWS = Draws(200, seed=1)


def cases(truth: list[bool], scores: list[float], patients: list[int] | None = None) -> Cases:
    number = len(truth)
    of = np.arange(number) if patients is None else np.array(patients, dtype=np.int64)
    truth_n, scores_n = np.array(truth, dtype=bool), np.array(scores, dtype=np.float64)
    slides = np.array([f"S-{at}" for at in range(number)], dtype=str)
    return Cases(
        ("none", "tumour"),
        slides,
        of.astype(np.int64),
        np.stack([~truth_n, truth_n], axis=1).reshape(number, 2),
        np.stack([1 - scores_n, scores_n], axis=1).reshape(number, 2),
    )


def verdict(measure: str, of_cases: Cases, *, at_least: float = 0.8, **more: object) -> SimpleNamespace:
    endpoint = Endpoint.model_validate(
        {"name": "e", "measure": measure, "model": MODEL, "class_name": "tumour", "at_least": at_least} | more
    )
    result = result_of(endpoint, of_cases, protocol().analysis, DRAWS)
    return SimpleNamespace(
        value=result.estimate.value,
        low=result.estimate.low,
        high=result.estimate.high,
        verdict=result.verdict,
        basis=result.basis,
    )


SHARES = ("sensitivity", "specificity", "accuracy", "balanced_accuracy")


@pytest.mark.parametrize("measure", SHARES)
@pytest.mark.parametrize(("number", "expected"), [(40, "yes"), (10, "no")])
def test_a_share_of_one_has_an_exact_interval_and_a_verdict(measure, number, expected):
    truth = [True, False] * number
    result = verdict(measure, cases(truth, [0.9 if has else 0.1 for has in truth]))
    assert (result.value, result.verdict, result.basis) == (
        1.0,
        expected if measure != "accuracy" else "yes",
        "exact, by patient",
    )
    if measure in ("sensitivity", "specificity"):
        assert (result.low, result.high) == pytest.approx((float(beta.ppf(0.025, number, 1)), 1.0))


@pytest.mark.parametrize(
    ("measure", "of_class", "at_least"),
    [
        ("accuracy", 30, 0.95),
        ("balanced_accuracy", 30, 0.93),
        ("auc", 20, 0.9),
        ("sensitivity", 60, 0.95),
        ("specificity", 60, 0.95),
    ],
)
def test_an_error_never_turns_a_verdict_from_no_to_yes(measure, of_class, at_least):
    truth = [True, False] * of_class
    results = []
    for errors in range(5):
        wrong = range(1 if measure == "specificity" else 0, 2 * errors, 2)
        scores = [0.9 if has != (at in wrong) else 0.1 for at, has in enumerate(truth)]
        results.append(verdict(measure, cases(truth, scores), at_least=at_least))
    assert [result.verdict for result in results] == ["no"] * 5
    lows = [result.low for result in results]
    assert lows == sorted(lows, reverse=True)
    assert [result.basis for result in results[:2]] == ["exact, by patient", "bootstrap, by patient"]


@pytest.mark.parametrize("measure", SHARES)
def test_a_share_of_nothing_has_an_exact_interval_and_is_not_met(measure):
    truth = [True, False] * 30
    result = verdict(measure, cases(truth, [0.1 if has else 0.9 for has in truth]))
    assert (result.value, result.low, result.verdict) == (0.0, 0.0, "no")
    assert result.high < 0.2


def test_slides_of_one_patient_are_one_case_of_an_exact_interval():
    """Two hundred slides of ten patients, all right: ten cases, whose interval reaches down to 69 %."""
    truth = [True] * 200
    result = verdict("sensitivity", cases(truth, [0.9] * 200, [at // 20 for at in range(200)]))
    assert (result.low, result.verdict) == (pytest.approx(0.025 ** (1 / 10)), "no")


@pytest.mark.parametrize(
    ("measure", "found", "value", "basis"),
    [
        ("sensitivity", cases([], []), None, "none: no case has a reference"),
        ("sensitivity", cases([False] * 8, [0.1] * 8), None, "none: undefined, no case has the class"),
        ("specificity", cases([True] * 8, [0.9] * 8), None, "none: undefined, every case has the class"),
        ("auc", cases([True] * 8, [0.9] * 8), None, "none: undefined, every case has the class"),
        ("kappa", cases([True, False] * 9, [0.9, 0.1] * 9), 1.0, "none: the same in all resamples"),
        ("accuracy", cases([True] * 4, [0.9, 0.9, 0.1, 0.9], [0, 0, 0, 1]), 0.75, "none: fewer than 5 patients"),
    ],
)
def test_without_an_interval_the_verdict_is_not_determined_and_the_reason_stands_there(measure, found, value, basis):
    result = verdict(measure, found)
    assert (result.value, result.low, result.verdict, result.basis) == (value, None, "not determined", basis)


@pytest.mark.parametrize(("has", "absent"), [(True, "none"), (False, "tumour")])
def test_a_balanced_accuracy_without_one_of_the_classes_is_undefined_and_says_which(has, absent):
    result = verdict("balanced_accuracy", cases([has] * 9, [0.9] * 9), class_name=None)
    assert (result.value, result.low, result.basis) == (None, None, f"none: undefined, no case of {absent}")


def test_a_resample_without_one_of_the_classes_has_no_balanced_accuracy():
    """Two negatives of fourteen, one of them called positive: one resample in nine has neither."""
    truth, scores = [False] * 2 + [True] * 12, [0.1, 0.9] + [0.9] * 11 + [0.1]
    of = cases(truth, scores)
    endpoint = Endpoint(name="e", measure="balanced_accuracy", model=MODEL)
    measured = result_of(endpoint, of, protocol().analysis, DRAWS).estimate
    counts = DRAWS.of(of.patients).counts_rp
    both = counts[:, :2].any(1) & counts[:, 2:].any(1)
    assert 0.8 * len(counts) < measured.resamples == both.sum() < len(counts)


def test_one_case_decides_nothing_and_says_so_by_its_interval():
    result = verdict("sensitivity", cases([True], [0.9]))
    assert (result.low, result.high, result.verdict) == (pytest.approx(0.025), 1.0, "no")


def test_classes_that_are_separated_completely_have_an_area_with_an_exact_interval():
    truth = [True, False] * 40
    result = verdict("auc", cases(truth, [0.9 if has else 0.1 for has in truth]))
    assert (result.low, result.verdict, result.basis) == (pytest.approx(0.025 ** (1 / 40)), "yes", "exact, by patient")


def test_a_score_at_the_threshold_is_positive():
    assert verdict("sensitivity", cases([True] * 9, [0.5] * 9)).value == 1.0


def test_an_endpoint_s_kappa_of_grades_is_scikit_learn_s_with_those_weights():
    random = np.random.default_rng(2)
    truth, called = random.integers(0, 4, 50), random.integers(0, 4, 50)
    names = ("g0", "g1", "g2", "g3")
    of = Cases(names, np.arange(50).astype(str), np.arange(50), np.eye(4, dtype=bool)[truth], np.eye(4)[called])
    for weights in (None, "linear", "quadratic"):
        result = verdict("kappa", of, weights=weights, class_name=None)
        assert result.value == pytest.approx(cohen_kappa_score(truth, called, weights=weights))
        assert result.low < result.value < result.high
    with pytest.raises(ValidationError, match="belong to the measure kappa"):
        Endpoint(name="e", measure="auc", model=MODEL, weights="linear")


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_a_mean_of_kappas_is_that_of_scikit_learn_s_pairs(weights):
    answers = np.random.default_rng(4).integers(0, 4, (40, 3))
    expected = [
        cohen_kappa_score(answers[:, a], answers[:, b], labels=range(4), weights=weights)
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    assert mean_kappa(answers, weights=weights, resamples=20).value == pytest.approx(np.mean(expected))


def test_agreement_over_slides_of_few_patients_is_as_unsure_as_patients_are():
    """Forty slides of eight patients, alike within a patient: the interval is that of eight, not forty."""
    random = np.random.default_rng(5)
    one, other = (np.repeat(random.integers(0, 2, 8), 5) for _ in range(2))
    patients = np.repeat(np.arange(8), 5).astype(str)
    by_patient, by_slide = (cohens_kappa(one, other, patients=of, seed=1) for of in (patients, None))
    assert by_patient.value == by_slide.value
    assert by_patient.high - by_patient.low > 1.8 * (by_slide.high - by_slide.low)
    wide, narrow = (concordance(one, other, patients=of) for of in (patients, None))
    assert (wide.value, wide.cases, wide.patients) == (narrow.value, 40, 8)
    assert wide.high - wide.low > 1.8 * (narrow.high - narrow.low)


def test_readers_who_always_agree_have_an_exact_concordance_and_a_kappa_without_an_interval():
    same, patients = np.tile([0, 1], 20), np.repeat(np.arange(10), 4).astype(str)
    kappa, agreement = cohens_kappa(same, same, patients=patients), concordance(same, same, patients=patients)
    assert (kappa.value, kappa.low, kappa.high) == (1.0, None, None)
    assert (agreement.value, agreement.low) == (1.0, pytest.approx(0.025 ** (1 / 10)))


@pytest.mark.parametrize(
    "wrong", [{"kind": "yes_no", "ordered": True}, {"kind": "choice", "choices": ["a", "b"], "weights": "linear"}]
)
def test_weights_belong_to_ordered_choices(wrong):
    with pytest.raises(ValidationError, match="ordered"):
        Question.model_validate({"name": "q", "ask": "?"} | wrong)


# Readings ---------------------------------------------------------------------------------------------------------

SLIDES = [f"S-{number:02d}" for number in range(20)]
"""Slides of ten patients, two each."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Clock for the start and signature of readings."""
    at = SimpleNamespace(now=datetime(2026, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(readings_module, "utc_now", lambda: at.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    return at


def cap(
    *, repeats: int = 1, washout_days: float = 0.0, readers: tuple[str, ...] = ("reader-1",), **changes: object
) -> Protocol:
    template = TEMPLATES["cap-validation"]
    own = {"repeats": repeats, "washout_days": washout_days, "readers": list(readers)}
    validation = template["validation"] | {"min_cases": 10, "min_washout_days": 0.0} | changes
    return protocol(endpoints=[], reading=template["reading"] | own, validation=validation)


def read(
    study: Study,
    clock: SimpleNamespace,
    *,
    answer: Callable[[str, str], str] = lambda slide, arm: "benign",
    reader: str = "reader-1",
    session_days: float = 14.5,
    stop_before: int = 10_000,
) -> None:
    """Read all slides, with sessions a given number of days apart; a slide takes a minute."""
    config = study.protocol.reading
    assert config is not None
    readings = Readings(study.ledger, "s", config)
    session, begun_at = 1, clock.now
    for _ in range(stop_before):
        row = readings.next_of(reader, now=datetime.max.replace(tzinfo=UTC))
        if row is None:
            return
        if row.session != session:
            session, clock.now = row.session, begun_at + timedelta(days=session_days * (row.session - 1))
        at = (reader, row.session, row.position)
        readings.start(*at, now=datetime.max.replace(tzinfo=UTC))
        clock.now += timedelta(minutes=1)
        readings.give(*at, "diagnosis", answer(row.slide_id, row.arm))
        readings.sign(*at, seconds=60.0)


def laid_out(ledger, folder, frozen: Protocol) -> Study:
    study = begun(ledger, folder / "p", frozen)
    assert frozen.reading is not None
    Readings(ledger, "s", frozen.reading).begin(lay_out(frozen.reading, SLIDES, 0), actor="ada")
    return study


def table(study: Study, name: str = "validation") -> dict[object, tuple[object, ...]]:
    [matching] = [candidate for candidate in reader_tables(gather(study)) if candidate.name == name]
    return {row[0]: row[1:] for row in matching.rows}


@on_sqlite
def test_a_validation_counts_patients_and_a_patient_agrees_where_all_slides_do(ledger, tmp_path, clock):
    study = laid_out(ledger, tmp_path, cap())
    read(study, clock, answer=lambda slide, arm: "malignant" if (slide, arm) == ("S-03", "digital") else "benign")
    rows = table(study)
    assert rows["reader-1: cases"] == ("at least 10", "10", "yes")
    assert rows["reader-1: concordance"][1:] == ("0.900 (0.555 to 0.997)", "no"), "nine of ten, not 19 of 20"


@on_sqlite
def test_readings_that_are_repeated_are_no_further_cases(ledger, tmp_path, clock):
    study = laid_out(ledger, tmp_path, cap(repeats=2, min_cases=11))
    read(study, clock)
    assert table(study)["reader-1: cases"] == ("at least 11", "10", "no"), "not 4 × 20 joined rows"


@on_sqlite
def test_a_case_counts_when_all_its_slides_were_read_both_ways(ledger, tmp_path, clock):
    study = laid_out(ledger, tmp_path, cap())
    read(study, clock, stop_before=39)
    rows = table(study)
    assert rows["reader-1: cases"] == ("at least 10", "9 read both ways, of 10 laid out", "no")
    assert rows["all criteria"][-1] == "no"


@on_sqlite
@pytest.mark.parametrize(("days", "found"), [(14.5, "yes"), (9.0, "no")])
def test_days_between_readings_are_measured_and_not_taken_from_the_protocol(ledger, tmp_path, clock, days, found):
    study = laid_out(ledger, tmp_path, cap(washout_days=14.0, min_washout_days=14.0))
    read(study, clock, session_days=days)
    [row] = [row for name, row in table(study).items() if "days" in str(name)]
    assert row[-1] == found
    assert str(row[1]).startswith("14.4" if found == "yes" else "8.9"), row
    assert ("too early" in str(row[1])) == (found == "no")


@on_sqlite
def test_a_washout_longer_than_the_guideline_s_is_a_criterion_of_its_own(ledger, tmp_path, clock):
    study = laid_out(ledger, tmp_path, cap(washout_days=21.0, min_washout_days=14.0))
    read(study, clock, session_days=15.0)
    [matching] = [candidate for candidate in reader_tables(gather(study)) if candidate.name == "validation"]
    assert [(row[1], row[3]) for row in matching.rows if "days" in str(row[0])] == [
        ("at least 14", "yes"),
        ("at least 21", "no"),
    ]


@on_sqlite
def test_a_reader_who_read_nothing_keeps_a_validation_from_being_met(ledger, tmp_path, clock):
    study = laid_out(ledger, tmp_path, cap(readers=("reader-1", "reader-2")))
    read(study, clock)
    rows = table(study)
    assert rows["reader-2: cases"] == ("at least 10", "0 read both ways, of 10 laid out", "no")
    assert rows["reader-2: concordance"][1:] == ("no case was read both ways", "no")
    assert rows["all criteria"][-1] == "no"


@on_sqlite
def test_a_validation_whose_readings_were_never_laid_out_is_in_the_report_and_not_met(ledger, tmp_path):
    rows = table(begun(ledger, tmp_path / "p", cap()))
    assert rows["reader-1: cases"] == ("at least 10", "0", "no")
    assert rows["all criteria"][-1] == "no"


@on_sqlite
def test_agreement_of_grades_is_weighted_states_its_weights_and_has_the_unweighted_beside_it(ledger, tmp_path, clock):
    names = ("reader-1", "reader-2", "reader-3")
    study = laid_out(ledger, tmp_path, cap(readers=names))
    given: dict[str, dict[str, int]] = {}
    grades = ("benign", "atypical", "malignant")
    for number, reader in enumerate(names):
        random = np.random.default_rng(number)
        given[reader] = {slide: int(random.integers(0, 3)) for slide in SLIDES}
        read(study, clock, reader=reader, answer=lambda slide, arm, r=reader: grades[given[r][slide]])  # type: ignore[misc]
    [matching] = [candidate for candidate in reader_tables(gather(study)) if candidate.name == "agreement"]
    own = [dict(zip(matching.columns, row, strict=True)) for row in matching.rows if row[1] == "digital"]
    pair = {row["measure"]: row for row in own if row["readers"] == "reader-1, reader-2"}
    one, other = ([given[reader][slide] for slide in SLIDES] for reader in names[:2])
    assert pair["Cohen’s kappa, quadratic weights"]["value"] == pytest.approx(
        cohen_kappa_score(one, other, weights="quadratic")
    )
    assert pair["Cohen’s kappa"]["value"] == pytest.approx(cohen_kappa_score(one, other))
    assert (pair["concordance"]["slides"], pair["concordance"]["patients"]) == (20, 10)
    assert {row["measure"] for row in own if row["readers"] == "all readers"} == {
        "Mean of Cohen’s kappas, quadratic weights",
        "Fleiss’ kappa",
    }
    assert "diagnosis (quadratic)" in matching.note


@on_sqlite
def test_a_reader_s_agreement_with_themselves_compares_first_and_last_readings(ledger, tmp_path, clock):
    study = laid_out(ledger, tmp_path, cap(repeats=2))
    read(study, clock)
    [matching] = [candidate for candidate in reader_tables(gather(study)) if candidate.name == "intra_observer"]
    own = {(row[1], row[3]): row for row in matching.rows}
    assert own["glass", "concordance"][4:] == (1.0, "0.692 to 1.000", 20, 10)
    assert own["glass", "Cohen’s kappa"][4] is None, "all answers are the same"
