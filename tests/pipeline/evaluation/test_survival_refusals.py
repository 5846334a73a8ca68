"""Follow-up data that cannot be true are refused with the values, by every measure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pipeline.evaluation.statistics.survival.breslow import breslow
from pipeline.evaluation.statistics.survival.brier import brier_scores, integrated_brier_score
from pipeline.evaluation.statistics.survival.censoring import censoring_of
from pipeline.evaluation.statistics.survival.concordance import harrells_c, unos_c
from pipeline.evaluation.statistics.survival.groups import RISK_GROUPS, group_curves, split_by_risk
from pipeline.evaluation.statistics.survival.horizon_calibration import survival_calibration
from pipeline.evaluation.statistics.survival.kaplan_meier import kaplan_meier
from pipeline.evaluation.statistics.survival.log_rank import log_rank

TIMES, EVENTS = np.array([1.0, 2, 3]), np.array([True, False, True])
CENSORING = censoring_of([1.0, 9], [True, True])

MEASURES: dict[str, Callable] = {
    "Kaplan-Meier": kaplan_meier,
    "log-rank": lambda times, events: log_rank(times, events, [0, 1, 0], RISK_GROUPS),
    "Harrell": lambda times, events: harrells_c(times, events, [1.0, 2, 3]),
    "Uno": lambda times, events: unos_c(times, events, [1.0, 2, 3], CENSORING),
    "censoring": censoring_of,
    "Brier": lambda times, events: brier_scores(times, events, np.full((3, 1), 0.5), [2], CENSORING),
    "Breslow": lambda times, events: breslow(times, events, [1.0, 2, 3]),
    "groups": lambda times, events: group_curves(times, events, [0, 1, 0], RISK_GROUPS),
    "calibration": lambda times, events: survival_calibration(times, events, [0.1, 0.2, 0.3], 2, bins=2),
}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
@pytest.mark.parametrize(
    ("times", "events", "message"),
    [
        ([1.0, np.nan, 3], EVENTS, "times: 1 of 3 are not finite, the first is nan at index 1"),
        ([1.0, 2, np.inf], EVENTS, "times: 1 of 3 are not finite, the first is inf at index 2"),
        ([1.0, 0, 3], EVENTS, "times: 1 of 3 are not above 0, the first is 0 at index 1"),
        ([-1.0, -2, 3], EVENTS, "times: 2 of 3 are not above 0, the first is -1 at index 0"),
        (TIMES, EVENTS[:2], r"events are of shape \(2,\), the other values of \(3,\)"),
        (TIMES, [1, 0, 1], "events are of type int64, not bool"),
        (TIMES, [False] * 3, "none of the 3 patients has an event"),
        ([], np.zeros(0, bool), "there are no patients"),
        ([[1.0, 2, 3]], EVENTS, r"times are of shape \(1, 3\)"),
    ],
)
def test_every_measure_refuses_impossible_follow_up(measure, times, events, message):
    with pytest.raises(ValueError, match=message):
        measure(times, events)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: harrells_c(TIMES, EVENTS, [1.0, np.nan, 3]), "risks: 1 of 3 are not finite"),
        (lambda: harrells_c(TIMES, EVENTS, [1.0, 3]), r"risks are of shape \(2,\)"),
        (lambda: unos_c(TIMES, EVENTS, [1.0, 2, 3], CENSORING, tau=np.nan), "tau is nan"),
        (lambda: breslow(TIMES, EVENTS, [1.0, 2, np.inf]), "risks: 1 of 3 are not finite"),
        (lambda: breslow(TIMES, EVENTS, TIMES).survival([np.nan], [1.0]), "risks: 1 of 1 are not finite"),
        (lambda: kaplan_meier(TIMES, EVENTS).at([np.nan]), "times: 1 of 1 are not finite"),
        (lambda: log_rank(TIMES, EVENTS, [0, 0, 0], ["one"]), "1 is named: name at least two"),
        (lambda: log_rank(TIMES, EVENTS, [0, 1, 2], RISK_GROUPS), "groups reach from 0 to 2, and only 0 to 1"),
        (lambda: log_rank(TIMES, EVENTS, [0, -1, 1], RISK_GROUPS), "groups reach from -1 to 1"),
        (lambda: log_rank(TIMES, EVENTS, [0.0, 1, 1], RISK_GROUPS), "groups are of type float64"),
        (lambda: split_by_risk([], 0.0), "no patients to split"),
        (lambda: split_by_risk([1.0], np.nan), "the training median is nan"),
        (lambda: split_by_risk([np.nan], 0.0), "risks: 1 of 1 are not finite"),
        (
            lambda: brier_scores(TIMES, EVENTS, np.full((3, 2), 0.5), [2], CENSORING),
            r"predicted survivals are of shape \(3, 2\), not \(3, 1\)",
        ),
        (
            lambda: brier_scores(TIMES, EVENTS, [[0.5], [np.nan], [0.5]], [2], CENSORING),
            "predicted survivals: 1 of 3 are not between 0 and 1, the first is nan",
        ),
        (lambda: brier_scores(TIMES, EVENTS, np.full((3, 2), 0.5), [2, 1], CENSORING), "not above 0 and ascending"),
        (lambda: brier_scores(TIMES, EVENTS, np.zeros((3, 0)), [], CENSORING), "give at least one"),
        (lambda: integrated_brier_score(np.array([0.1]), [1.0]), "at least two"),
        (lambda: integrated_brier_score(np.array([0.1]), [1.0, 2]), r"2 horizons for scores of shape \(1,\)"),
        (lambda: survival_calibration(TIMES, EVENTS, [0.1, 1.2, 0.3], 2, bins=2), "the first is 1.2"),
        (lambda: survival_calibration(TIMES, EVENTS, [0.1, 0.2, 0.3], 0, bins=2), "not above 0"),
        (lambda: survival_calibration(TIMES, EVENTS, [0.1, 0.2, 0.3], 2, bins=0), "0 bins: give at least one"),
    ],
)
def test_other_impossible_values_are_refused(refused, message):
    with pytest.raises(ValueError, match=message):
        refused()
