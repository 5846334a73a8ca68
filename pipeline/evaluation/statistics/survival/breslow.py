"""Survival curves from the risks of a Cox model, by Breslow's baseline (J R Stat Soc B 34:216, 1972).

The cumulative hazard of a patient of risk r is H(t) · exp(r); H rises at each time of an event by the number of events
divided by Σ exp(r) over the training patients at risk. Sums are kept as logarithms, which risks of any
size neither overflow nor reduce to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.statistics.bootstrap import Values
from pipeline.evaluation.statistics.survival.follow_up import check_finite, check_follow_up, check_risks


@dataclass(frozen=True)
class BaselineHazard:
    """Cumulative hazard of a patient of risk 0, a step function of time."""

    times_e: Values
    """Distinct times of events in training, ascending."""
    log_cumulative_e: Values
    """Logarithm of the cumulative hazard from each time on; before the first, the hazard is 0."""
    last_time: float
    """End of the longest follow-up in training; the hazard is unknown after it."""

    def survival(self, risks_n: ArrayLike, times_t: ArrayLike) -> Values:
        """Predicted probability of no event up to each time, (patients, times).

        Args:
            risks_n: (patients,), on the scale of the training risks. times_t: (times,), in any order.

        Raises:
            ValueError: a risk or time that is not finite, or a time after the longest follow-up in training.
        """
        risks, times = check_finite("risks", risks_n), check_finite("times", times_t)
        if times.max(initial=0) > self.last_time:
            raise ValueError(
                f"time {times.max():g} is after the training patients' longest follow-up, {self.last_time:g}, so the "
                "hazard is unknown there: choose earlier times."
            )
        step_t = np.searchsorted(self.times_e, times, side="right")
        log_cumulative_t = np.concatenate([[-np.inf], self.log_cumulative_e])[step_t]
        with np.errstate(over="ignore"):  # a hazard beyond any float is a survival of 0
            return np.asarray(np.exp(-np.exp(risks[:, None] + log_cumulative_t)), np.float64)


def breslow(times_n: ArrayLike, events_n: ArrayLike, risks_n: ArrayLike) -> BaselineHazard:
    """Estimate the baseline hazard from training patients.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.
        risks_n: (patients,), logarithms of relative hazards: the network's output after Cox's loss.

    Raises:
        ValueError: data as refused by `follow_up.check_follow_up`, no event, or a risk that is not finite.
    """
    times, events = check_follow_up(times_n, events_n)
    risks = check_risks(risks_n, times)
    latest_first = np.argsort(-times, kind="stable")
    log_sums = np.logaddexp.accumulate(risks[latest_first])
    times_e, events_e = np.unique(times[events], return_counts=True)
    at_risk_e = np.searchsorted(-times[latest_first], -times_e, side="right")
    log_cumulative_e = np.logaddexp.accumulate(np.log(events_e) - log_sums[at_risk_e - 1])
    return BaselineHazard(times_e, log_cumulative_e, float(times.max()))
