"""Survival measures are those of lifelines and scikit-survival on Rossi's and GBSG-2's data, to 1e-6.

The figures are in benchmarks/results/survival_reference.jsonl, with the versions that computed them.
"""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation.statistics.survival.breslow import breslow
from pipeline.evaluation.statistics.survival.brier import brier_scores, integrated_brier_score
from pipeline.evaluation.statistics.survival.censoring import censoring_of
from pipeline.evaluation.statistics.survival.concordance import harrells_c, unos_c
from pipeline.evaluation.statistics.survival.kaplan_meier import kaplan_meier
from pipeline.evaluation.statistics.survival.log_rank import log_rank
from tests.pipeline.evaluation.survival_figures import Figures, figures_of

ABS = 1e-6


@pytest.fixture(scope="module", params=["rossi", "gbsg2"])
def figures(request) -> Figures:
    return figures_of(request.param)


def test_the_curve_its_limits_and_the_numbers_at_risk_are_those_of_lifelines(figures):
    curve, expected = kaplan_meier(figures.times_n, figures.events_n), figures.lifelines

    assert curve.times_e.tolist() == expected["times"]
    assert curve.at_risk_e.tolist() == expected["at_risk"]
    assert curve.events_e.tolist() == expected["observed"]
    for own, name in ((curve.survival_e, "survival"), (curve.low_e, "low"), (curve.high_e, "high")):
        np.testing.assert_allclose(own, expected[name], rtol=0, atol=ABS)
    assert curve.median() == expected["median"]


def test_the_log_rank_test_is_that_of_lifelines(figures):
    test = log_rank(figures.times_n, figures.events_n, figures.groups_n, figures.group_names)

    assert test.statistic == pytest.approx(figures.lifelines["log_rank"]["statistic"], abs=ABS)
    assert test.p_value == pytest.approx(figures.lifelines["log_rank"]["p_value"], rel=ABS)
    assert test.degrees_of_freedom == len(figures.group_names) - 1


def test_harrells_c_is_that_of_both_libraries(figures):
    c, expected = harrells_c(figures.times_n, figures.events_n, figures.risks_n), figures.sksurv["harrell"]

    assert c.value == pytest.approx(figures.lifelines["harrell"], abs=ABS)
    assert c.value == pytest.approx(expected["c"], abs=ABS)
    assert (c.concordant, c.tied) == (expected["concordant"], expected["tied"])
    assert c.comparable == expected["concordant"] + expected["discordant"] + expected["tied"]


def test_unos_c_of_test_patients_is_that_of_scikit_survival(figures):
    censoring = censoring_of(figures.times_n[::2], figures.events_n[::2])

    c = unos_c(figures.times_n[1::2], figures.events_n[1::2], figures.risks_n[1::2], censoring, tau=figures.tau)

    assert c.value == pytest.approx(figures.sksurv["uno"], abs=ABS)


def test_brier_scores_of_test_patients_are_those_of_scikit_survival(figures):
    censoring = censoring_of(figures.times_n[::2], figures.events_n[::2])
    train, test = figures.risks_n[::2], figures.risks_n[1::2]
    survival_nh = np.exp(-figures.rate * figures.horizons_h * np.exp(test - train.mean())[:, None])

    scores_h = brier_scores(figures.times_n[1::2], figures.events_n[1::2], survival_nh, figures.horizons_h, censoring)

    np.testing.assert_allclose(scores_h, figures.sksurv["brier"], rtol=0, atol=ABS)
    integrated = integrated_brier_score(scores_h, figures.horizons_h)
    assert integrated == pytest.approx(figures.sksurv["integrated_brier"], abs=ABS)


def test_breslows_baseline_is_that_of_scikit_survival(figures):
    """Theirs has a value at every time, with or without an event."""
    expected = figures.sksurv["baseline"]

    survival_nt = breslow(figures.times_n, figures.events_n, figures.risks_n).survival([0.0, 1.5], expected["times"])

    cumulative_t = np.array(expected["cumulative_hazard"])
    np.testing.assert_allclose(survival_nt[0], np.exp(-cumulative_t), rtol=0, atol=ABS)
    np.testing.assert_allclose(survival_nt[1], np.exp(-cumulative_t * np.exp(1.5)), rtol=0, atol=ABS)


def test_breslows_baseline_of_a_fitted_cox_model_is_that_of_lifelines(figures):
    expected = figures.lifelines

    baseline = breslow(figures.times_n, figures.events_n, expected["log_hazards"])

    assert baseline.times_e.tolist() == expected["times"]
    np.testing.assert_allclose(np.exp(baseline.log_cumulative_e), expected["cumulative_hazard"], rtol=ABS)
