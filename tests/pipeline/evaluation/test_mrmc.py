"""Areas over readers and cases match iMRMC, and are calibrated on simulated readers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import norm

from pipeline.evaluation.statistics.mrmc import ArmScores, mrmc_auc, mrmc_difference
from training.foundation.errors import EmptyTableError

CASES = 150


def arm(true: tuple[int, ...], false: tuple[int, ...]) -> ArmScores:
    """Readers who call the first given numbers of positives and negatives positive."""
    order = np.arange(CASES)
    return ArmScores(*(np.array([(order < count).astype(float) for count in counts]) for counts in (false, true)))


# "fakepilot2" of iMRMC's repository (DIDSR/iMRMC, CC0; Accudata/home), 3 readers, 150 and 150 cases, analysed there by
# iMRMC 4.0.0: the cases that each reader called positive follow from the moments in its BDGtable.csv.
ONE, OTHER = arm((129, 96, 150), (0, 0, 12)), arm((18, 12, 18), (0, 0, 0))


@pytest.mark.parametrize(
    ("found", "value", "variance", "freedom", "low", "high", "p_value"),
    [
        (mrmc_auc(ONE), 9.03333333e-1, 1.86122297e-3, 2.11212165, 7.17708748e-1, 1.08895792, 1.12484833e-2),
        (mrmc_auc(OTHER), 5.53333333e-1, 1.82252051e-4, 29.4284717, 5.25722578e-1, 5.80944089e-1, 4.57427546e-4),
        (mrmc_difference(ONE, OTHER), 0.35, 1.42393736e-3, 2.39887433, 1.87638992e-1, 5.12361008e-1, 1.14251514e-2),
    ],
)
def test_the_results_are_those_that_imrmc_published(found, value, variance, freedom, low, high, p_value):
    assert found.value == pytest.approx(value, abs=1e-6)
    assert found.variance == pytest.approx(variance, rel=1e-6)
    assert found.degrees_of_freedom == pytest.approx(freedom, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    assert found.p_value == pytest.approx(p_value, rel=1e-6)


def test_the_areas_of_the_readers_are_those_that_imrmc_published():
    assert mrmc_auc(ONE).by_reader == pytest.approx((0.93, 0.82, 0.96))
    assert mrmc_difference(ONE, OTHER).by_reader == pytest.approx((0.37, 0.28, 0.40))


def by_hand(one: ArmScores, other: ArmScores) -> float:
    """Covariance of two areas by its definition: products of pairs of triples, in loops."""
    sums, pairs = np.zeros(8), np.zeros(8)

    def triples(arm: ArmScores) -> list[tuple[int, int, int, float]]:
        rows = []
        for reader, (negatives, positives) in enumerate(zip(arm.negatives_rc, arm.positives_rc, strict=True)):
            for (i, low), (j, high) in itertools.product(enumerate(negatives), enumerate(positives)):
                if not np.isnan(low) and not np.isnan(high):
                    rows.append((reader, i, j, (high > low) + 0.5 * (high == low)))
        return rows

    first, second = triples(one), triples(other)
    for (reader, i, j, x), (other_reader, k, m, y) in itertools.product(first, second):
        kind = 4 * (reader != other_reader) + (0 if i == k and j == m else 1 if i == k else 2 if j == m else 3)
        sums[kind] += x * y
        pairs[kind] += 1
    moments = np.divide(sums, pairs, out=np.zeros(8), where=pairs > 0)
    return float(moments @ (pairs / (len(first) * len(second))) - moments[7])


def split_plot(random: np.random.Generator, *, shift: float = 1.0) -> ArmScores:
    """Six readers in two groups that read separate halves of the cases; one reader omitted one case."""
    negatives, positives = (random.normal(mean, 1, (6, 8)) + random.normal(0, 1, 8) for mean in (0, shift))
    for scores in (negatives, positives):
        scores[:3, 4:] = np.nan
        scores[3:, :4] = np.nan
    negatives[0, 0] = np.nan
    return ArmScores(negatives, positives)


def test_a_split_plot_design_has_the_variance_of_the_definition():
    random = np.random.default_rng(5)
    one, other = split_plot(random), split_plot(random, shift=2.0)
    assert mrmc_auc(one).variance == pytest.approx(by_hand(one, one), abs=1e-12)
    expected = by_hand(one, one) + by_hand(other, other) - 2 * by_hand(one, other)
    assert mrmc_difference(one, other).variance == pytest.approx(expected, abs=1e-12)


def test_the_variance_is_right_on_average_and_the_interval_holds_the_truth():
    """Readers and cases are drawn repeatedly: the mean of the estimated variances is the areas' variance."""
    random = np.random.default_rng(11)
    areas, variances, hits = [], [], 0
    truth = norm.cdf(1 / np.sqrt(2 + 0.2**2))
    for _ in range(600):
        skill = random.normal(0, 0.2, (6, 1))
        negatives = random.normal(0, 0.6, (1, 20)) + random.normal(0, 0.8, (6, 20))
        positives = 1 + skill + random.normal(0, 0.6, (1, 25)) + random.normal(0, 0.8, (6, 25))
        result = mrmc_auc(ArmScores(negatives, positives))
        areas.append(result.value)
        variances.append(result.variance)
        hits += result.low <= truth <= result.high
    assert np.mean(variances) == pytest.approx(np.var(areas, ddof=1), rel=0.15)
    assert 0.92 <= hits / 600 <= 0.99


@pytest.mark.parametrize(
    ("negatives", "positives"),
    [
        (np.zeros((1, 5)), np.ones((1, 5))),
        (np.zeros((3, 1)), np.ones((3, 5))),
        (np.full((3, 5), np.nan), np.ones((3, 5))),
    ],
)
def test_too_few_readers_or_cases_are_refused(negatives, positives):
    with pytest.raises(EmptyTableError, match="needs at least two of each"):
        mrmc_auc(ArmScores(negatives, positives))


def test_readers_who_all_separate_everything_have_no_interval_and_no_p_value():
    result = mrmc_auc(ArmScores(np.zeros((3, 4)), np.ones((3, 5))))
    assert (result.value, result.variance, result.low, result.high, result.p_value) == (1.0, 0.0, None, None, None)
