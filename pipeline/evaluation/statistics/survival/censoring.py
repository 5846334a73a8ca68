"""Inverse probability of censoring weights: patients who were followed stand for those whose follow-up ended early.

G(t), the probability to be followed beyond t, is Kaplan and Meier's estimate with the roles of event and censoring
exchanged. At equal times, events come first: patients with an event at t are no longer at risk of being censored at t.
It is estimated from training patients, so that a test set's weights do not depend on its own outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.statistics.bootstrap import Values
from pipeline.evaluation.statistics.survival.follow_up import check_follow_up
from pipeline.evaluation.statistics.survival.kaplan_meier import numbers_at_risk


@dataclass(frozen=True)
class Censoring:
    """G, a step function of time."""

    times_c: Values
    """Distinct times of censoring, ascending."""
    followed_c: Values
    """G from each time on; 1 before the first."""
    last_time: float
    """End of the longest follow-up; G is unknown after it."""

    def weights(self, times_t: Values) -> Values:
        """1 ÷ G at each time, (times,).

        Raises:
            ValueError: a time at which no training patient was followed any more.
        """
        latest = float(times_t.max(initial=0))
        if latest > self.last_time:
            raise ValueError(
                f"time {latest:g} is after the training patients' longest follow-up, {self.last_time:g}, so nothing is "
                "known about censoring there: choose an earlier tau or horizon."
            )
        followed_t = np.concatenate([[1.0], self.followed_c])[np.searchsorted(self.times_c, times_t, side="right")]
        if (followed_t == 0).any():
            raise ValueError(
                f"at time {times_t[followed_t == 0].min():g}, all training patients without an event were censored, so "
                "none stands for those who were not: choose an earlier tau or horizon."
            )
        return np.asarray(1 / followed_t, np.float64)


def censoring_of(times_n: ArrayLike, events_n: ArrayLike) -> Censoring:
    """Estimate G from training patients, of whom none needs to be censored.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.

    Raises:
        ValueError: data as refused by `follow_up.check_follow_up`, or no event.
    """
    times, events = check_follow_up(times_n, events_n)
    times_c, censored_c = np.unique(times[~events], return_counts=True)
    event_times = np.sort(times[events])
    events_c = np.searchsorted(event_times, times_c, "right") - np.searchsorted(event_times, times_c, "left")
    at_risk_c = numbers_at_risk(times, times_c) - events_c
    followed_c = np.asarray(np.cumprod((at_risk_c - censored_c) / at_risk_c), np.float64)
    return Censoring(times_c, followed_c, float(times.max()))
