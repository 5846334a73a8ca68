"""Groups of patients: split at a number from training, their curves, and the log-rank test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.statistics.survival.groups import RISK_GROUPS, group_curves, split_by_risk
from pipeline.evaluation.statistics.survival.log_rank import log_rank
from tests.pipeline.evaluation.survival_figures import figures_of

TIMES, EVENTS = np.array([1.0, 2, 3, 4]), np.ones(4, bool)


def test_the_log_rank_statistic_is_that_worked_out_by_hand():
    # At 1: two of four at risk are "a", expected 1/2, variance 1/4; at 2: one of three, 1/3 and 2/9; then none.
    # Observed 2, expected 5/6, variance 17/36: (7/6)² ÷ (17/36) = 49/17.
    test = log_rank(TIMES, EVENTS, [0, 0, 1, 1], ["a", "b"])

    assert test.statistic == pytest.approx(49 / 17)
    assert test.p_value == pytest.approx(0.0896, abs=5e-5)
    assert [(group.name, group.patients, group.observed) for group in test.groups] == [("a", 2, 2), ("b", 2, 2)]
    assert [group.expected for group in test.groups] == pytest.approx([5 / 6, 19 / 6])


def test_groups_with_the_same_patients_do_not_differ():
    test = log_rank(np.r_[TIMES, TIMES], np.r_[EVENTS, EVENTS], np.repeat([0, 1], 4), ["a", "b"])

    assert (test.statistic, test.p_value) == pytest.approx((0, 1))


@given(st.permutations(range(3)))
def test_the_order_of_the_groups_does_not_matter(order):
    figures = figures_of("gbsg2")
    expected = log_rank(figures.times_n, figures.events_n, figures.groups_n, figures.group_names)

    test = log_rank(figures.times_n, figures.events_n, np.array(order)[figures.groups_n], ["x", "y", "z"])

    assert test.statistic == pytest.approx(expected.statistic)


def test_of_groups_that_do_not_differ_one_in_twenty_is_called_different():
    random = np.random.default_rng(4)
    called = 0
    for _ in range(400):
        times, limits = random.exponential(size=(2, 60))
        groups = random.integers(0, 3, 60)
        called += log_rank(np.minimum(times, limits), times <= limits, groups, ["a", "b", "c"]).p_value < 0.05

    assert 8 <= called <= 34


def test_an_empty_group_is_named_instead_of_tested():
    test = log_rank(TIMES, EVENTS, np.zeros(4, int), RISK_GROUPS)

    assert (test.statistic, test.p_value, test.degrees_of_freedom) == (None, None, 0)
    assert test.reason == "Not tested: no patients in high risk."
    assert [group.patients for group in test.groups] == [4, 0]


@pytest.mark.parametrize("times", [[1.0, 2, 3, 4], [5.0, 5, 5, 5]])
def test_groups_that_could_not_differ_are_not_tested(times):
    """The second group is censored before any event; or all have the event at once."""
    tied = len(set(times)) == 1
    groups = [0, 0, 1, 1] if tied else [1, 1, 0, 0]

    test = log_rank(times, [True] * 4 if tied else [False, False, True, True], groups, ["a", "b"])

    assert test.p_value is None
    assert test.reason.startswith("Not tested: at each time of an event, one group alone was at risk, or all")


def test_rounding_errors_of_many_events_in_one_group_are_no_test():
    for seed in range(6):
        times = np.random.default_rng(seed).integers(1, 40, 400)
        test = log_rank([*times, 0.1, 0.2], [True] * 400 + [False] * 2, np.repeat([0, 1], [400, 2]), ["a", "b"])

        assert test.p_value is None


@pytest.mark.parametrize("names", ["abc", "cab", "bca"])
def test_a_group_censored_before_the_first_event_adds_no_degree_of_freedom(names):
    index = [names.index(name) for name in "aabbcc"]

    test = log_rank([1.0, 2, 3, 4, 0.1, 0.2], [True] * 4 + [False] * 2, index, list(names))

    assert test.degrees_of_freedom == 1
    assert test.statistic == pytest.approx(49 / 17)


def test_patients_are_split_at_the_training_median_and_not_at_their_own():
    groups = split_by_risk([0.1, 0.5, 0.9, 0.7, 0.2], 0.7)

    assert groups.groups_n.tolist() == [0, 0, 1, 1, 0]
    assert (groups.low, groups.high, groups.statement) == (3, 2, None)


@pytest.mark.parametrize(
    ("median", "counts", "statement"),
    [
        (2.0, (3, 0), "No patient has high risk: all 3 risks, -1 to 1, are below the training median, 2, so"),
        (-1.0, (0, 3), "No patient has low risk: all 3 risks, -1 to 1, are at or above the training median, -1, so"),
    ],
)
def test_a_split_with_an_empty_group_says_so(median, counts, statement):
    groups = split_by_risk([0.0, 1, -1], median)

    assert (groups.low, groups.high) == counts
    assert groups.statement.startswith(statement)


def test_a_group_without_events_stays_at_1_and_one_without_patients_has_no_curve():
    low, high, other = group_curves(TIMES, [False, False, True, False], [0, 0, 1, 1], ["low", "high", "other"])

    assert (low.patients, low.events, low.curve.at([2.0])[0].tolist()) == (2, 0, [1])
    assert np.isnan(low.curve.at([2.0])[1])
    assert (high.patients, high.events, high.curve.survival_e.tolist()) == (2, 1, [0.5])
    assert (other.patients, other.events, other.curve) == (0, 0, None)
