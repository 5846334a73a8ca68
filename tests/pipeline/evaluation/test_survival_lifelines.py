"""Survival measures are those that lifelines computes here and now, on its data sets and on many ties.

lifelines 0.30 requires pandas below 3 and cannot be installed beside ours. These tests skip without it, and run in an
environment of its own (`pip install lifelines lazy-loader scikit-learn pytest`), from the root of the repository:

    python -m pytest --noconftest -c /dev/null --rootdir=. tests/pipeline/evaluation/test_survival_lifelines.py

Its figures for the same data sets are compared everywhere, by test_survival_reference.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation.statistics.survival.concordance import harrells_c
from pipeline.evaluation.statistics.survival.kaplan_meier import kaplan_meier
from pipeline.evaluation.statistics.survival.log_rank import log_rank

lifelines = pytest.importorskip("lifelines", reason="lifelines requires another pandas")


def ties(seed):
    """Times, events, groups and risks of 150 patients, with few distinct times and risks."""
    random = np.random.default_rng(seed)
    groups = random.integers(0, 4, 150)
    return random.integers(1, 20, 150).astype(float), random.uniform(size=150) < 0.6, groups, groups + 0.5


def rossi():
    from lifelines.datasets import load_rossi

    table = load_rossi()
    return table["week"].to_numpy(float), table["arrest"].to_numpy() == 1, table["race"], table["prio"].to_numpy(float)


def gbsg2():
    from lifelines.datasets import load_gbsg2

    table = load_gbsg2()
    menopause = (table["menostat"] == "Post").to_numpy(int)
    return table["time"].to_numpy(float), table["cens"].to_numpy() == 1, menopause, table["pnodes"].to_numpy(float)


CASES = {"rossi": rossi, "gbsg2": gbsg2, **{f"ties {seed}": lambda seed=seed: ties(seed) for seed in range(8)}}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_curve_test_and_concordance_are_those_of_lifelines(case):
    from lifelines.statistics import multivariate_logrank_test
    from lifelines.utils import concordance_index

    times, events, groups, risks = case()
    estimate = lifelines.KaplanMeierFitter().fit(times, events)
    expected_test = multivariate_logrank_test(times, groups, events)

    curve = kaplan_meier(times, events)
    test = log_rank(times, events, groups, [f"group {g}" for g in range(int(np.max(groups)) + 1)])

    np.testing.assert_allclose(
        curve.survival_e, estimate.survival_function_.loc[curve.times_e].iloc[:, 0], rtol=0, atol=1e-9
    )
    limits = estimate.confidence_interval_.loc[curve.times_e].to_numpy()
    inside = curve.survival_e > 0
    np.testing.assert_allclose(np.stack([curve.low_e, curve.high_e], 1)[inside], limits[inside], rtol=0, atol=1e-9)
    assert curve.median() == pytest.approx(estimate.median_survival_time_ if curve.median() else None)
    assert (test.statistic, test.p_value) == pytest.approx((expected_test.test_statistic, expected_test.p_value))
    assert harrells_c(times, events, risks).value == pytest.approx(concordance_index(times, -risks, events))
