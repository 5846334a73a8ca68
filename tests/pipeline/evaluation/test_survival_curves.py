"""Survival curves, estimated or predicted, against values by hand and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.statistics.survival.breslow import breslow
from pipeline.evaluation.statistics.survival.discrete import discrete_survival
from pipeline.evaluation.statistics.survival.kaplan_meier import kaplan_meier, numbers_at_risk

TIMES, EVENTS = np.array([5.0, 3.0, 2.0, 3.0, 8.0]), np.array([True, False, True, True, False])


def test_a_curve_with_its_limits_is_that_worked_out_by_hand():
    # 4/5 at 2; one of four at 3, where a fifth is censored: 4/5 · 3/4; one of two at 5: · 1/2.
    # Limits at 2: V = 1/(5·4), √V ÷ −ln 0.8 = 1.00209, exp(1.95996 · 1.00209) = 7.128; 0.8^7.128 and 0.8^(1/7.128)
    curve = kaplan_meier(TIMES, EVENTS)

    assert curve.times_e.tolist() == [2, 3, 5]
    assert curve.at_risk_e.tolist() == [5, 4, 2]
    assert curve.events_e.tolist() == [1, 1, 1]
    assert curve.survival_e == pytest.approx([0.8, 0.6, 0.3])
    assert (curve.low_e[0], curve.high_e[0]) == pytest.approx((0.2038, 0.9692), abs=5e-5)
    assert (curve.patients, curve.last_time, curve.median()) == (5, 8, 5)


def test_a_curve_is_1_before_the_first_event_and_unknown_after_the_last_patient():
    survival, low, high = kaplan_meier(TIMES, EVENTS).at([1.9, 2, 4.9, 8, 8.1])

    assert survival == pytest.approx([1, 0.8, 0.6, 0.3, np.nan], nan_ok=True)
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [True, False, False, False, True]


def test_a_curve_that_reaches_0_stays_there_without_limits():
    curve = kaplan_meier([1.0, 2, 4], [True, False, True])
    survival, low, high = curve.at([4, 100])

    assert survival.tolist() == [0, 0]
    assert np.isnan([*low, *high]).all()


def test_the_median_is_reached_when_half_had_the_event_and_not_a_rounding_error_later():
    medians = {n: kaplan_meier(np.arange(1.0, n + 1), np.ones(n, bool)).median() for n in range(2, 60, 2)}

    assert medians == {n: n / 2 for n in medians}
    assert kaplan_meier([1.0, 2, 3], [True, False, False]).median() is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_without_censoring_the_curve_is_the_share_of_patients_still_without_an_event(times):
    times_n = np.array(times, np.float64)
    curve = kaplan_meier(times_n, np.ones(len(times), bool))

    assert curve.survival_e == pytest.approx([(times_n > t).mean() for t in curve.times_e])
    inside = curve.survival_e > 0
    assert (curve.low_e[inside] > 0).all()
    assert (curve.low_e[inside] < curve.survival_e[inside]).all()
    assert (curve.survival_e[inside] < curve.high_e[inside]).all()
    assert (curve.high_e[inside] < 1).all()


def test_a_patient_is_at_risk_up_to_the_time_of_the_event_or_censoring():
    assert numbers_at_risk(TIMES, [0, 2, 2.5, 3, 8, 9]).tolist() == [5, 5, 4, 4, 1, 0]


def test_a_baseline_of_equal_risks_adds_up_events_by_patients_at_risk():
    baseline = breslow(TIMES, EVENTS, np.zeros(5))

    assert np.exp(baseline.log_cumulative_e) == pytest.approx([1 / 5, 1 / 5 + 1 / 4, 1 / 5 + 1 / 4 + 1 / 2])
    survival_nt = baseline.survival([0, np.log(2)], [8, 1.9, 3])
    assert survival_nt == pytest.approx(np.exp([[-0.95, 0, -0.45], [-1.9, 0, -0.9]]))


@given(st.floats(-5000, 5000))
def test_a_shift_of_all_risks_changes_no_predicted_curve(shift):
    risks_n = np.array([0.5, -1.0, 2.0, 0.0, 0.3])

    shifted = breslow(TIMES, EVENTS, risks_n + shift).survival(risks_n + shift, TIMES)

    np.testing.assert_allclose(shifted, breslow(TIMES, EVENTS, risks_n).survival(risks_n, TIMES), atol=1e-9)


def test_risks_far_apart_give_survivals_of_0_and_1():
    survival_nt = breslow(TIMES, EVENTS, [-900.0, 0, 0, 0, 900]).survival([-900, 2000], [5])

    assert survival_nt.tolist() == [[1], [0]]


def test_a_baseline_says_nothing_after_the_last_training_patient():
    with pytest.raises(ValueError, match=r"time 8\.5 is after the training patients' longest follow-up, 8"):
        breslow(TIMES, EVENTS, np.zeros(5)).survival([0.0], [1, 8.5])


def test_survival_from_hazards_of_bins_is_that_worked_out_by_hand():
    hazards_nb = [[0.5, 0.2, 0.9], [0.0, 1.0, 0.5]]

    survival_nt = discrete_survival(hazards_nb, [10, 30, np.inf], [0, 30, 5, 20, 10])

    expected = [[1, 0.4, np.sqrt(0.5), 0.5 * np.sqrt(0.8), 0.5], [1, 0, 1, 0, 1]]
    assert survival_nt == pytest.approx(np.array(expected))


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.lists(st.floats(0, 9), min_size=2, max_size=9))
def test_survival_from_hazards_never_rises_with_time(hazards, times):
    survival_nt = discrete_survival([hazards], [2.0, 3.5, 9.0], np.sort(times))

    assert (np.diff(survival_nt) <= 1e-12).all()
    assert ((survival_nt >= 0) & (survival_nt <= 1)).all()


@pytest.mark.parametrize(("bounds", "time"), [([10.0, np.inf], 10.5), ([10.0, 20.0], 20.5), ([np.inf], 1.0)])
def test_in_a_bin_without_end_and_after_the_last_one_survival_is_unknown(bounds, time):
    with pytest.raises(ValueError, match="survival is known from 0 to"):
        discrete_survival(np.full((1, len(bounds)), 0.1), bounds, [time])


@pytest.mark.parametrize("bounds", [[], [0.0, 1], [2.0, 1], [np.inf, np.inf], [np.nan], [1.0, np.nan], [[1.0, 2.0]]])
def test_bounds_that_do_not_ascend_are_refused(bounds):
    with pytest.raises(ValueError, match="not the ends of bins"):
        discrete_survival(np.full((1, 2), 0.1), bounds, [0.5])
