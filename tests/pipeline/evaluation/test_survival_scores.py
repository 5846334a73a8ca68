"""Brier scores and calibration of predicted survival, against values by hand and simulated patients."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation.statistics.survival.brier import brier_scores, integrated_brier_score
from pipeline.evaluation.statistics.survival.censoring import censoring_of
from pipeline.evaluation.statistics.survival.horizon_calibration import survival_calibration

TIMES, EVENTS = np.array([1.0, 2, 3, 4]), np.array([True, False, True, False])


def simulated(seed, number):
    """Times, events and the true hazard of each patient; about half are censored."""
    random = np.random.default_rng(seed)
    hazards = np.exp(random.normal(size=number))
    times, limits = 1e-9 + random.exponential(1 / hazards), 1e-9 + random.exponential(1.0, number)
    return np.minimum(times, limits), times <= limits, hazards


def test_weights_of_censoring_are_those_worked_out_by_hand():
    censoring = censoring_of(TIMES, EVENTS)  # at 2, one of three is censored; at 4, the last

    assert censoring.weights(np.array([1.9, 2.0, 3.9])) == pytest.approx([1, 1.5, 1.5])
    with pytest.raises(ValueError, match="at time 4, all training patients without an event were censored"):
        censoring.weights(np.array([4.0]))


def test_at_equal_times_an_event_leaves_before_another_is_censored():
    censoring = censoring_of([2.0, 2, 2, 5], [True, True, False, True])

    assert censoring.weights(np.array([2.0])) == pytest.approx([2])


def test_the_brier_score_is_that_worked_out_by_hand():
    # At 3.5: 1 · 0.1² of the event at 1, nothing of the censoring at 2, 3/2 · 0.3² of the event at 3, 3/2 · 0.2² of the
    # patient followed beyond: 0.205 ÷ 4. At 1: 0.4² of the event, then 0.1², 0.2² and 0.3².
    survival_nh = [[0.4, 0.1], [0.9, 0.5], [0.8, 0.3], [0.7, 0.8]]

    scores_h = brier_scores(TIMES, EVENTS, survival_nh, [1, 3.5], censoring_of(TIMES, EVENTS))

    assert scores_h == pytest.approx([0.3 / 4, 0.205 / 4])
    assert integrated_brier_score(scores_h, [1, 3.5]) == pytest.approx((0.3 + 0.205) / 8)


def test_a_certain_right_prediction_has_0_and_one_of_a_half_a_quarter():
    times = np.array([1.0, 2, 3, 4, 5])
    horizons_h, censoring = [1.5, 2.5, 4.5], censoring_of(times, np.ones(5, bool))
    right_nh = (times[:, None] > horizons_h).astype(float)

    assert brier_scores(times, np.ones(5, bool), right_nh, horizons_h, censoring).tolist() == [0, 0, 0]
    halves = brier_scores(times, np.ones(5, bool), np.full((5, 3), 0.5), horizons_h, censoring)
    assert halves == pytest.approx([0.25] * 3)
    assert integrated_brier_score(halves, horizons_h) == pytest.approx(0.25)


def test_the_score_of_censored_patients_is_near_that_of_the_same_patients_uncensored():
    random = np.random.default_rng(3)
    risks = random.normal(size=8000)
    times, limits = (1e-9 + random.exponential(scale, 8000) for scale in (np.exp(-risks), 1.5))
    seen, events, horizons_h = np.minimum(times, limits), times <= limits, [0.3, 0.8, 1.5]
    survival_nh = np.exp(-np.exp(0.7 * risks)[:, None] * horizons_h)

    whole = brier_scores(times, np.ones(8000, bool), survival_nh, horizons_h, censoring_of(times, np.ones(8000, bool)))
    censored = brier_scores(seen, events, survival_nh, horizons_h, censoring_of(seen, events))

    assert censored == pytest.approx(whole, abs=0.01)


def test_a_horizon_that_follow_up_does_not_reach_is_refused():
    survival_nh = np.full((4, 1), 0.5)

    with pytest.raises(ValueError, match="horizon 4 is not before the longest follow-up, 4"):
        brier_scores(TIMES, EVENTS, survival_nh, [4], censoring_of([1.0, 9], [True, True]))
    with pytest.raises(ValueError, match=r"time 3 is after the training patients' longest follow-up, 2\.5"):
        brier_scores(TIMES, EVENTS, survival_nh, [3], censoring_of([1.0, 2.5], [True, True]))


def test_without_censoring_what_was_observed_is_the_share_without_an_event():
    times = np.array([1.0, 2, 3, 9, 4, 9, 9, 9])
    predicted = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9])

    low, high = survival_calibration(times, np.ones(8, bool), predicted, 4, bins=2)

    assert (low.lowest, low.highest, low.count, low.events, low.observed) == (0.1, 0.4, 4, 3, pytest.approx(0.25))
    assert (high.lowest, high.highest, high.count, high.events, high.observed) == (0.6, 0.9, 4, 1, pytest.approx(0.75))
    assert (low.mean_predicted, high.mean_predicted) == pytest.approx((0.25, 0.75))
    assert low.low < 0.25 < low.high


def test_a_bin_that_nobody_was_followed_up_in_has_no_observed_survival():
    low, high = survival_calibration(
        [1.0, 2, 3, 9, 9, 9], [True, False, False, False, False, False], [0.1, 0.1, 0.1, 0.9, 0.9, 0.9], 5, bins=2
    )

    assert (low.observed, low.low, low.high) == (None, None, None)
    assert (high.observed, high.low, high.high) == (1.0, None, None)
    with pytest.raises(ValueError, match=r"horizon 9\.5 is after the longest follow-up, 9"):
        survival_calibration([1.0, 9], [True, False], [0.1, 0.9], 9.5, bins=2)


def test_predictions_of_the_true_hazards_are_calibrated_and_overconfident_ones_are_not():
    times, events, hazards = simulated(6, 4000)

    right = survival_calibration(times, events, np.exp(-0.5 * hazards), 0.5, bins=8)
    overconfident = survival_calibration(times, events, np.exp(-0.5 * hazards**2), 0.5, bins=8)

    assert sum(b.low < b.mean_predicted < b.high for b in right) >= 7
    assert max(abs(b.mean_predicted - b.observed) for b in right) < 0.05
    assert max(abs(b.mean_predicted - b.observed) for b in overconfident) > 0.1
    assert [b.count for b in right] == [500] * 8
