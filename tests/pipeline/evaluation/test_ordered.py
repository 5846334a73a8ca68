"""R² and mean absolute error of predicted numbers."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation.statistics.agreement import cohens_kappa
from pipeline.evaluation.statistics.ordered import mean_absolute_error, r_squared

TRUTH, PREDICTED = np.array([3.0, -0.5, 2, 7]), np.array([2.5, 0.0, 2, 8])


def test_both_measures_are_those_worked_out_by_hand():
    # Errors 0.5, 0.5, 0, 1; mean of the truth 2.875, squares around it 29.1875: 1 − 1.5 ÷ 29.1875
    assert mean_absolute_error(TRUTH, PREDICTED) == 0.5
    assert r_squared(TRUTH, PREDICTED) == pytest.approx(1 - 1.5 / 29.1875)


def test_the_mean_explains_nothing_and_worse_predictions_less():
    assert r_squared(TRUTH, np.full(4, TRUTH.mean())) == pytest.approx(0)
    assert r_squared(TRUTH, -PREDICTED) < 0


@pytest.mark.parametrize("truth", [[2.0], [2.0, 2.0, 2.0]])
def test_true_values_that_do_not_vary_have_no_r_squared(truth):
    assert r_squared(truth, np.ones(len(truth))) is None
    assert mean_absolute_error(truth, np.ones(len(truth))) == 1


def test_kappa_with_quadratic_weights_is_that_worked_out_by_hand():
    # Squared distances 0, 1, 0, 4, 1 against those of all 25 pairs of a truth and a prediction, 52: 1 − 6 · 5 ÷ 52
    truth, predicted = np.array([0, 1, 2, 3, 2]), np.array([0, 2, 2, 1, 3])

    kappa = cohens_kappa(truth, predicted, weights="quadratic", resamples=10)
    assert kappa.value == pytest.approx(1 - 6 * 5 / 52)


@pytest.mark.parametrize(
    ("truth", "predicted", "message"),
    [
        (
            [1.0, np.nan],
            [1.0, 2],
            "1 of 2 items have a true or predicted value that is not finite, the first at index 1",
        ),
        ([1.0, 2], [np.inf, 2], "the first at index 0"),
        ([1.0, 2], [1.0], r"true values are of shape \(2,\), predicted ones of \(1,\)"),
        ([], [], "not empty"),
        ([[1.0, 2]], [[1.0, 2]], "give one row of each"),
    ],
)
@pytest.mark.parametrize("measure", [r_squared, mean_absolute_error])
def test_values_that_are_missing_are_refused(measure, truth, predicted, message):
    with pytest.raises(ValueError, match=message):
        measure(truth, predicted)
