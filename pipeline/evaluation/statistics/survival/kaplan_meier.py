"""Kaplan and Meier's estimate of survival (J Am Stat Assoc 53:457, 1958), with Greenwood's interval.

S(t) = Π (n − d) ÷ n over the times of events up to t, with n patients at risk and d events: a patient censored at the
time of an event is still at risk. Limits are S^exp(±z·√V ÷ ln S), V = Σ d ÷ (n·(n − d)): normal on the scale of
log(−log S), so that they stay between 0 and 1 (Kalbfleisch & Prentice 2002, chapter 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from pipeline.evaluation.statistics.bootstrap import CONFIDENCE, Values
from pipeline.evaluation.statistics.survival.follow_up import Events, check_finite, check_follow_up

Z = float(norm.ppf((1 + CONFIDENCE) / 2))
_SAME = 1e-12


@dataclass(frozen=True)
class KaplanMeier:
    """A curve with pointwise 95 % limits; a step at each distinct time of an event."""

    times_e: Values
    """Distinct times of events, ascending."""
    at_risk_e: NDArray[np.int64]
    """Patients whose event or censoring was not before each time."""
    events_e: NDArray[np.int64]
    """Events at each time."""
    survival_e: Values
    """Share without an event from each time on."""
    low_e: Values
    """NaN, like `high_e`, where the survival is 0: the method then has no interval."""
    high_e: Values
    patients: int
    last_time: float
    """End of the longest follow-up."""

    def at(self, times_t: ArrayLike) -> tuple[Values, Values, Values]:
        """Survival, lower and upper limit at any times, (times,) each.

        Before the first event, survival is 1 without limits. All are NaN after the longest follow-up, unless everybody
        has had the event by then: survival is then 0.

        Raises:
            ValueError: a time that is not finite.
        """
        times = check_finite("times", times_t)
        step = np.searchsorted(self.times_e, times, side="right")
        survival, low, high = (
            np.concatenate([[first], values_e])[step]
            for first, values_e in ((1.0, self.survival_e), (np.nan, self.low_e), (np.nan, self.high_e))
        )
        unknown = (times > self.last_time) & (survival > 0)
        for values in (survival, low, high):
            values[unknown] = np.nan
        return survival, low, high

    def median(self) -> float | None:
        """First time by which at most half are without an event; None if more than half are to the end."""
        reached = np.flatnonzero(self.survival_e <= 0.5 + _SAME)
        return float(self.times_e[reached[0]]) if len(reached) else None


def kaplan_meier(times_n: ArrayLike, events_n: ArrayLike) -> KaplanMeier:
    """Estimate the survival of patients.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.

    Raises:
        ValueError: data as refused by `follow_up.check_follow_up`, or no event.
    """
    return product_limit(*check_follow_up(times_n, events_n))


def product_limit(times_n: Values, events_n: Events) -> KaplanMeier:
    """As `kaplan_meier`, of checked data, which may be without an event."""
    times_e, events_e = np.unique(times_n[events_n], return_counts=True)
    at_risk_e = numbers_at_risk(times_n, times_e)
    survival_e = np.asarray(np.cumprod((at_risk_e - events_e) / at_risk_e), np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance_e = np.cumsum(events_e / (at_risk_e * (at_risk_e - events_e)))
        spread_e = Z * np.sqrt(variance_e) / -np.log(survival_e)
        low_e, high_e = survival_e ** np.exp(spread_e), survival_e ** np.exp(-spread_e)
    low_e[survival_e == 0], high_e[survival_e == 0] = np.nan, np.nan
    return KaplanMeier(
        times_e=times_e,
        at_risk_e=at_risk_e,
        events_e=events_e.astype(np.int64),
        survival_e=survival_e,
        low_e=low_e,
        high_e=high_e,
        patients=len(times_n),
        last_time=float(times_n.max()),
    )


def numbers_at_risk(times_n: Values, at_t: ArrayLike) -> NDArray[np.int64]:
    """Patients with neither event nor censoring before each time of `at_t`, (times,)."""
    before_t = np.searchsorted(np.sort(times_n), np.asarray(at_t, np.float64), side="left")
    return np.asarray(len(times_n) - before_t, np.int64)
