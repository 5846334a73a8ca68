"""Shares of 0 and 1 have exact intervals that count patients."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import beta

from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, estimate, percentile_interval
from pipeline.evaluation.statistics.level import overall_measures
from pipeline.evaluation.statistics.metrics import decide, reaches
from pipeline.evaluation.statistics.one_class import Cutoffs, class_result
from pipeline.evaluation.statistics.proportions import exact_area_where_none, exact_interval, share

CUTOFFS = Cutoffs(threshold=0.7, specificities=(0.9,), bins=5)


def clopper_pearson(hits: int, number: int) -> tuple[float, float]:
    """Clopper-Pearson interval from quantiles of the beta distribution."""
    low = float(beta.ppf(0.025, hits, number - hits + 1)) if hits else 0.0
    return low, float(beta.ppf(0.975, hits + 1, number - hits)) if hits < number else 1.0


def of(right: list[bool], patients: list[int], resamples: int = 200) -> Estimate:
    drawn = Resamples.draw(np.array(patients).astype(str), resamples=resamples, seed=0)
    return share(np.array(right), np.ones(len(right), bool), drawn)


@pytest.mark.parametrize(("hits", "number"), [(0, 1), (1, 1), (0, 40), (40, 40), (2, 3), (57, 60)])
def test_the_exact_interval_is_that_of_the_beta_distribution(hits, number):
    assert exact_interval(hits, number) == pytest.approx(clopper_pearson(hits, number), abs=1e-9)


@pytest.mark.parametrize("slides", [1, 30])
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("patients", [1, 4, 20])
def test_all_right_and_all_wrong_have_the_interval_of_so_many_patients(patients, right, slides):
    estimated = of([right] * patients * slides, [n // slides for n in range(patients * slides)])
    assert (estimated.low, estimated.high) == pytest.approx(clopper_pearson(patients if right else 0, patients))
    assert estimated.is_exact


def test_few_patients_with_one_item_each_have_an_exact_interval_and_with_several_none():
    assert (of([True, True, False], [0, 1, 2]).low, of([True, True, False], [0, 1, 2]).high) == pytest.approx(
        clopper_pearson(2, 3)
    )
    assert of([True, True, False], [0, 1, 1]).low is None


def test_a_share_that_varies_keeps_its_bootstrap():
    estimated = of([True] * 15 + [False] * 5, list(range(20)))
    assert not estimated.is_exact
    assert estimated.low < 0.75 < estimated.high


def test_no_item_to_share_among_has_no_value():
    drawn = Resamples.draw(np.array(list("abcdef")), resamples=50, seed=0)
    assert share(np.ones(6, bool), np.zeros(6, bool), drawn) == Estimate(None)


def test_one_positive_patient_among_thirty_has_an_interval_from_nearly_nothing_to_one():
    truth = np.arange(30) == 0
    result = class_result(
        "x", truth, np.where(truth, 0.9, 0.1), Resamples.draw(np.arange(30).astype(str), resamples=200, seed=0), CUTOFFS
    )
    assert (result.measures["sensitivity"].low, result.measures["sensitivity"].high) == pytest.approx((0.025, 1.0))
    assert result.measures["specificity"].low == pytest.approx(0.025 ** (1 / 29))


@pytest.mark.parametrize(
    ("positive", "negative", "pairs"), [("abc", "defgh", 3), ("abcd", "abcd", 2), ("a", "a", 0), ("ab", "bc", 1)]
)
def test_an_area_of_one_counts_pairs_of_patients_that_are_independent(positive, negative, pairs):
    names = np.array([*positive, *negative])
    truth = np.arange(len(names)) < len(positive)
    area = exact_area_where_none(estimate(1.0, np.ones(50)), truth, np.unique(names, return_inverse=True)[1])
    assert area.low == (pytest.approx(0.025 ** (1 / pairs)) if pairs else None)


def test_the_exact_area_holds_the_truth_as_often_as_it_says():
    """The area is 0.9; among 400 small cohorts, those with complete separation still have a low enough bound."""
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        scores = np.r_[random.normal(0, 1, 6), random.normal(1.8124, 1, 6)]
        truth = np.arange(12) >= 6
        area = float((scores[truth][:, None] > scores[~truth]).mean())
        interval = exact_area_where_none(estimate(area, np.zeros(0)), truth, np.arange(12))
        wrong += interval.low is not None and not interval.low <= 0.9 <= interval.high
    assert wrong / 400 <= 0.05


def test_accuracy_and_balanced_accuracy_of_one_have_exact_intervals():
    labels = np.repeat([0, 1, 2], [12, 6, 4])
    measures = overall_measures(
        labels,
        np.eye(3, dtype=np.float32)[labels],
        Resamples.draw(np.arange(22).astype(str), resamples=100, seed=0),
        0.5,
    )
    assert measures["accuracy"].low == pytest.approx(0.025 ** (1 / 22))
    bonferroni = np.mean([(0.025 / 3) ** (1 / n) for n in (12, 6, 4)])
    assert measures["balanced accuracy"].low == pytest.approx(bonferroni)


WRONG = (0, 1, 2, 3, 4)


def never_rises(ends: list[float]) -> bool:
    return all(one >= more for one, more in pairwise(ends))


@pytest.mark.parametrize("slides", [1, 3])
@pytest.mark.parametrize("patients", [5, 10, 19, 20, 40, 60, 100])
def test_one_more_error_never_makes_a_share_s_interval_better(patients, slides):
    of_patient = [at % patients for at in range(patients * slides)]
    wrong = [of([at >= n for at in range(patients * slides)], of_patient, 1000) for n in WRONG]
    right = [of([at < n for at in range(patients * slides)], of_patient, 1000) for n in WRONG]

    assert never_rises([measured.low for measured in wrong])
    assert never_rises([-measured.high for measured in right])
    assert all(measured.low <= measured.value <= measured.high for measured in wrong + right)
    assert wrong[1].low <= wrong[0].low == pytest.approx(clopper_pearson(patients, patients)[0])
    assert right[1].high >= right[0].high == pytest.approx(clopper_pearson(0, patients)[1])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("of_class", [6, 10, 20, 30])
def test_one_more_error_never_makes_an_accuracy_s_or_area_s_interval_better(of_class, classes):
    labels = np.repeat(np.arange(classes), of_class)
    resamples = Resamples.draw(np.arange(len(labels)).astype(str), resamples=1000, seed=0)
    measured = []
    for wrong in WRONG:
        called = np.where(np.arange(len(labels)) < wrong, 1, labels)
        measured.append(overall_measures(labels, np.eye(classes, dtype=np.float32)[called], resamples, 0.5))

    for name in ("accuracy", "balanced accuracy") + (("AUROC",) if classes == 2 else ()):
        assert never_rises([of_wrong[name].low for of_wrong in measured]), name
        assert all(of_wrong[name].low <= of_wrong[name].value <= of_wrong[name].high for of_wrong in measured), name


@pytest.mark.parametrize("of_class", [5, 10, 20, 40])
def test_a_pair_in_the_wrong_order_never_makes_an_area_s_interval_better(of_class):
    truth = np.arange(2 * of_class) < of_class
    resamples = Resamples.draw(np.arange(2 * of_class).astype(str), resamples=1000, seed=0)
    scores = np.where(truth, 0.9, 0.1)
    ends = []
    for wrong in WRONG:
        below = np.where(np.arange(2 * of_class) < wrong, 0.05, scores)
        one, other = (class_result("x", has, below, resamples, CUTOFFS).measures["AUROC"] for has in (truth, ~truth))
        assert one.low <= one.value <= one.high
        assert (other.low, other.high) == pytest.approx((1 - one.high, 1 - one.low))  # the mirror image
        ends.append(one.low)
    assert never_rises(ends)


def test_an_area_of_two_classes_has_one_interval_over_all_tiles_and_by_class():
    labels = np.repeat([0, 1], 20)
    resamples = Resamples.draw(np.arange(40).astype(str), resamples=200, seed=0)
    for wrong in (0, 1):
        positive = np.where(np.arange(40) < wrong, 0.95, np.where(labels == 1, 0.9, 0.1))
        overall = overall_measures(labels, np.stack([1 - positive, positive], axis=1), resamples, 0.5)["AUROC"]
        assert overall == class_result("x", labels == 1, positive, resamples, CUTOFFS).measures["AUROC"]
        assert overall.low is not None


def test_an_interval_that_a_perfect_result_does_not_bound_is_the_bootstrap_s():
    right = np.arange(40) >= 15
    drawn = Resamples.draw(np.arange(40).astype(str), resamples=500, seed=0)
    low, high, _ = percentile_interval(drawn.totals(drawn.sum_by_patient(right.astype(float))) / 40)
    measured = share(right, np.ones(40, bool), drawn)
    assert (measured.low, measured.high) == (low, high)


def test_a_score_at_the_threshold_is_positive_at_every_level():
    """0.7 has no exact 32-bit value: widened, the stored score is slightly below the threshold."""
    stored = np.array([0.7, 0.69], np.float32)
    assert reaches(stored.astype(np.float64), 0.7).tolist() == [True, False]
    assert decide(np.stack([1 - stored, stored], axis=1), 0.7).tolist() == [1, 0]
    drawn = Resamples.draw(np.array(["a", "b"]), resamples=10, seed=0)
    assert class_result("x", np.array([True, False]), stored, drawn, CUTOFFS).measures["sensitivity"].value == 1.0
