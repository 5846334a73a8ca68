"""Agreement of readers matches published examples."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation.statistics.agreement import cohens_kappa, concordance, fleiss_kappa
from training.foundation.errors import EmptyTableError


def answers_of(counts_ca: list[list[int]]) -> np.ndarray:
    """Answers (cases, readers) from the number of readers per answer."""
    return np.array([np.repeat(np.arange(len(row)), row) for row in counts_ca])


def test_fleiss_kappa_of_the_worked_example():
    """Ten cases, fourteen readers, five answers: kappa 0.210 (Wikipedia, "Fleiss' kappa", worked example)."""
    counts = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    kappa = fleiss_kappa(answers_of(counts), resamples=200)
    assert kappa.value == pytest.approx(0.20993, abs=1e-5)
    assert kappa.low < kappa.value < kappa.high
    assert kappa.cases == 10


def test_cohens_kappa_of_the_worked_example():
    """Two readers of 50 grants: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no; kappa 0.4."""
    one, other = np.repeat([1, 1, 0, 0], [20, 5, 10, 15]), np.repeat([1, 0, 1, 0], [20, 5, 10, 15])
    kappa = cohens_kappa(one, other, resamples=500)
    assert kappa.value == pytest.approx(0.4)
    assert 0.05 < kappa.low < 0.4 < kappa.high < 0.7


def test_with_two_readers_answers_left_out_do_not_count():
    one, other = np.array([0, 1, 1, -1, 0, 2]), np.array([0, 1, 0, 1, -1, 2])
    assert cohens_kappa(one, other, resamples=50).cases == 4
    assert concordance(one, other).cases == 4
    assert fleiss_kappa(np.stack([one, other], axis=1), resamples=50).cases == 4


def test_grades_near_each_other_agree_more_by_weights():
    one, other = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([0, 1, 2, 3, 1, 2, 3, 2])
    plain, weighted = (cohens_kappa(one, other, weights=weights, resamples=50).value for weights in (None, "quadratic"))
    assert plain < weighted


@pytest.mark.parametrize(("same", "cases", "low", "high"), [(57, 60, 0.8608, 0.9896), (60, 60, 0.9404, 1.0)])
def test_concordance_has_the_exact_interval(same, cases, low, high):
    one = np.zeros(cases, int)
    other = np.array([0] * same + [1] * (cases - same))
    agreement = concordance(one, other)
    assert agreement.value == same / cases
    assert (agreement.low, agreement.high) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("patients", [5, 10, 20, 40])
def test_one_more_difference_never_makes_a_concordance_s_interval_better(patients):
    own = np.repeat(np.arange(patients).astype(str), 2)
    one = np.zeros(2 * patients, int)
    lows = [concordance(one, (np.arange(2 * patients) < wrong).astype(int), patients=own).low for wrong in range(5)]
    assert lows == sorted(lows, reverse=True)
    assert lows[0] == pytest.approx(0.025 ** (1 / patients))


def test_a_second_slide_of_one_patient_makes_no_concordance_better_than_full_agreement():
    own = np.array([*(f"p{at}" for at in range(19)), "p0"])
    one = np.zeros(20, int)
    agreement = concordance(one, (np.arange(20) == 5).astype(int), patients=own)
    assert agreement.low <= concordance(one, one, patients=own).low == pytest.approx(0.025 ** (1 / 19))


def test_where_all_answers_are_the_same_kappa_is_not_defined_and_concordance_is():
    same = np.zeros(10, int)
    assert cohens_kappa(same, same, resamples=20).value is None
    assert fleiss_kappa(np.zeros((10, 3), int), resamples=20).value is None
    assert concordance(same, same).value == 1.0


def test_what_nobody_answered_together_is_refused():
    with pytest.raises(EmptyTableError, match="no case was answered"):
        cohens_kappa(np.array([0, -1]), np.array([-1, 0]))
    with pytest.raises(EmptyTableError, match="two readers"):
        fleiss_kappa(np.zeros((3, 1), int))
