"""Concordance of risks with the order of events, against all pairs formed one by one."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.evaluation.statistics.survival.censoring import censoring_of
from pipeline.evaluation.statistics.survival.concordance import harrells_c, unos_c
from pipeline.evaluation.statistics.survival.pairs import pair_counts
from tests.pipeline.evaluation.survival_figures import figures_of

PATIENTS = st.lists(
    st.tuples(st.integers(1, 5), st.booleans(), st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0])), min_size=1, max_size=24
)


def arrays_of(patients):
    times, events, risks = zip(*patients, strict=True)
    return np.array(times, np.float64), np.array(events), np.array(risks)


def by_pairs(times, events, risks):
    """Comparable, concordant and tied pairs (patients, 3) by the definition at the top of pairs.py."""
    counts = np.zeros((len(times), 3), int)
    for i, j in permutations(range(len(times)), 2):
        if events[i] and (times[i] < times[j] or (times[i] == times[j] and not events[j])):
            counts[i] += 1, risks[i] > risks[j], risks[i] == risks[j]
    return counts


def simulated(seed, number, *, effect=1.0):
    """Times of events and risks; the hazard is exp(effect · risk)."""
    random = np.random.default_rng(seed)
    risks = random.normal(size=number)
    return random.exponential(np.exp(-effect * risks)) + 1e-9, risks


@given(PATIENTS)
def test_pairs_are_those_formed_one_by_one_ties_of_times_and_risks_included(patients):
    times, events, risks = arrays_of(patients)

    counts = pair_counts(times, events, risks)

    counted = np.stack([counts.comparable_n, counts.concordant_n, counts.tied_n], axis=1)
    np.testing.assert_array_equal(counted, by_pairs(times, events, risks))


@given(PATIENTS)
def test_reversed_risks_have_one_minus_the_concordance(patients):
    times, events, risks = arrays_of(patients)
    assume(events.any())
    forward, backward = harrells_c(times, events, risks), harrells_c(times, events, -risks)

    if forward.value is None:
        assert backward.value is None
        return
    assert forward.value + backward.value == pytest.approx(1)
    censoring = censoring_of(times + 0.5, np.ones(len(times), bool))
    uno = [unos_c(times, events, sign * risks, censoring).value for sign in (1, -1)]
    assert sum(uno) == pytest.approx(1)


@pytest.mark.parametrize("dataset", ["rossi", "gbsg2"])
def test_a_flipped_sign_of_the_risk_shows(dataset):
    figures = figures_of(dataset)

    right = harrells_c(figures.times_n, figures.events_n, figures.risks_n)
    flipped = harrells_c(figures.times_n, figures.events_n, -figures.risks_n)

    assert right.value > 0.6
    assert flipped.value == pytest.approx(1 - right.value)


def test_at_one_time_an_event_comes_before_a_censoring_and_two_events_have_no_order():
    times, risks = [3.0, 3.0], [2.0, 1.0]

    assert harrells_c(times, [True, False], risks).value == 1
    assert harrells_c(times, [False, True], risks).value == 0
    assert harrells_c(times, [True, True], risks).value is None


def test_equal_risks_count_half():
    c = harrells_c([1.0, 2, 3], [True, True, False], [1.0, 1, 0])

    assert (c.value, c.comparable, c.concordant, c.tied) == (pytest.approx(2.5 / 3), 3, 2, 1)


def test_where_no_pair_is_comparable_the_reason_is_given():
    only_last = harrells_c([1.0, 2, 3], [False, False, True], [1.0, 2, 3])
    censoring = censoring_of([1.0, 9], [True, True])
    before_tau = unos_c([4.0, 5], [True, False], [1.0, 2], censoring, tau=4)

    assert (only_last.value, only_last.comparable) == (None, 0)
    assert only_last.reason == (
        "No pair of patients is comparable: no patient was followed beyond the time of another's event."
    )
    assert before_tau.reason.endswith("another's event before tau (4).")
    assert unos_c([4.0, 5], [True, False], [1.0, 2], censoring, tau=4.1).value == 0


def test_without_censoring_both_concordances_are_the_same():
    times, risks = simulated(3, 200)
    everyone = np.ones(200, bool)

    uno = unos_c(times, everyone, risks, censoring_of(times, everyone))

    assert uno.value == pytest.approx(harrells_c(times, everyone, risks).value)
    assert uno.comparable == 200 * 199 / 2


def test_unos_c_is_that_of_all_pairs_up_to_tau_and_does_not_depend_on_the_censoring():
    """The risk works early only, so that early events, which censoring leaves, are ordered better than all."""
    random = np.random.default_rng(8)
    risks = random.normal(size=6000)
    times = 0.1 + np.where(risks + 0.3 * random.normal(size=6000) > 0.8, 0.0, 1.0) + random.uniform(size=6000)
    limits = 0.05 + random.exponential(1.2, 6000)
    seen, events, tau = np.minimum(times, limits), times <= limits, 1.9

    truth = unos_c(times, np.ones(6000, bool), risks, censoring_of(times, np.ones(6000, bool)), tau=tau).value
    uno = unos_c(seen, events, risks, censoring_of(seen, events), tau=tau).value

    assert uno == pytest.approx(truth, abs=0.02)
    assert harrells_c(seen, events, risks).value > truth + 0.05


def test_an_event_after_all_training_patients_has_no_weight_and_is_refused():
    times, events, risks = [2.0, 4, 6], [True, True, False], [3.0, 2, 1]

    with pytest.raises(ValueError, match="time 4 is after the training patients' longest follow-up, 3"):
        unos_c(times, events, risks, censoring_of([1.0, 3], [True, True]))
    with pytest.raises(ValueError, match="at time 4, all training patients without an event were censored"):
        unos_c(times, events, risks, censoring_of([1.0, 4], [True, False]))
    assert unos_c(times, events, risks, censoring_of([1.0, 3], [True, True]), tau=3).value == 1


def test_twenty_thousand_patients_take_less_than_two_seconds():
    import time

    times, risks = simulated(1, 20_000)
    events = np.random.default_rng(2).uniform(size=20_000) < 0.5
    start = time.process_time()

    c = harrells_c(times, events, risks)
    uno = unos_c(times, events, risks, censoring_of(times, events), tau=1.0)

    assert time.process_time() - start < 2
    assert 0.7 < c.value < 0.8
    assert 0.7 < uno.value < 0.85
