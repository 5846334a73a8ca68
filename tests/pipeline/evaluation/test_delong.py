"""DeLong's variance and test: the published example, and the definition computed pair by pair."""

import numpy as np
import pytest

from pipeline.evaluation.statistics.delong import delong_auc, delong_covariance, delong_test

# Albumin, total protein, K-G score, and whether surgery did not help, of 43 women with ovarian cancer: the example of
# DeLong, DeLong & Clarke-Pearson 1988 as printed, with its results, in the SAS/STAT user's guide (LOGISTIC, "Comparing
# Receiver Operating Characteristic Curves"). Facts, not code.
OVARIAN = """
3.0 5.8 10 0  3.2 6.3 5 1  3.9 6.8 3 1  2.8 4.8 6 0  3.2 5.8 3 1  0.9 4.0 5 0  2.5 5.7 8 0  1.6 5.6 5 1  3.8 5.7 5 1
3.7 6.7 6 1  3.2 5.4 4 1  3.8 6.6 6 1  4.1 6.6 5 1  3.6 5.7 5 1  4.3 7.0 4 1  3.6 6.7 4 0  2.3 4.4 6 1  4.2 7.6 4 0
4.0 6.6 6 0  3.5 5.8 6 1  3.8 6.8 7 1  3.0 4.7 8 0  4.5 7.4 5 1  3.7 7.4 5 1  3.1 6.6 6 1  4.1 8.2 6 1  4.3 7.0 5 1
4.3 6.5 4 1  3.2 5.1 5 1  2.6 4.7 6 1  3.3 6.8 6 0  1.7 4.0 7 0  3.7 6.1 5 1  3.3 6.3 7 1  4.2 7.7 6 1  3.5 6.2 5 1
2.9 5.7 9 0  2.1 4.8 7 1  2.8 6.2 8 0  4.0 7.0 7 1  3.3 5.7 6 1  3.7 6.9 5 1  3.6 6.6 5 1
"""


@pytest.fixture(scope="module")
def ovarian():
    """Truth (43,), and scores of albumin, K-G score (negated) and total protein."""
    table = np.array(OVARIAN.split(), float).reshape(43, 4)
    return table[:, 3] == 1, {"albumin": table[:, 0], "K-G score": 10 - table[:, 2], "total protein": table[:, 1]}


@pytest.mark.parametrize(
    ("test", "auc", "error", "low", "high"),
    [
        ("albumin", 0.7366, 0.0927, 0.5549, 0.9182),
        ("K-G score", 0.7258, 0.1028, 0.5243, 0.9273),
        ("total protein", 0.6478, 0.1000, 0.4518, 0.8439),
    ],
)
def test_areas_errors_and_limits_are_those_published(ovarian, test, auc, error, low, high):
    truth, scores = ovarian

    result = delong_auc(truth, scores[test])

    assert (result.auc, result.standard_error, result.low, result.high) == pytest.approx(
        (auc, error, low, high), abs=5e-5
    )


@pytest.mark.parametrize(
    ("test", "difference", "error", "p_value"),
    [("albumin", 0.0108, 0.0953, 0.9102), ("total protein", -0.0780, 0.1046, 0.4561)],
)
def test_differences_from_the_k_g_score_are_those_published(ovarian, test, difference, error, p_value):
    truth, scores = ovarian

    result = delong_test(truth, scores[test], scores["K-G score"])

    assert (result.difference, result.standard_error, result.p_value) == pytest.approx(
        (difference, error, p_value), abs=5e-5
    )
    assert result.cases == 43


def by_pairs(truth, scores_mn):
    """AUC by definition: every positive against every negative, ties count half."""
    positive, negative = scores_mn[:, truth], scores_mn[:, ~truth]
    wins = (positive[:, :, None] > negative[:, None]) + 0.5 * (positive[:, :, None] == negative[:, None])
    v10, v01 = wins.mean(2), wins.mean(1)
    return wins.mean((1, 2)), np.cov(v10) / positive.shape[1] + np.cov(v01) / negative.shape[1]


def test_mid_ranks_give_what_all_pairs_give_ties_included():
    random = np.random.default_rng(0)
    truth = random.uniform(size=90) < 0.4
    scores_mn = np.round(random.normal(size=(2, 90)) + truth, 1)

    covariance, expected = delong_covariance(truth, scores_mn), by_pairs(truth, scores_mn)

    np.testing.assert_allclose(covariance[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(covariance[1], expected[1], rtol=1e-10)


def test_separated_classes_have_no_interval_and_equal_models_no_p_value():
    truth = np.array([False] * 4 + [True] * 4)
    apart = delong_auc(truth, np.arange(8.0))

    assert (apart.auc, apart.low, apart.high) == (1.0, None, None)
    assert delong_test(truth, np.arange(8.0) % 3, np.arange(8.0) % 3).p_value is None


def test_fewer_than_two_cases_of_a_kind_have_no_variance():
    truth = np.array([True, False, False])

    assert delong_auc(truth, np.arange(3.0)) is None
    assert delong_test(truth, np.arange(3.0), np.arange(3.0)) is None
