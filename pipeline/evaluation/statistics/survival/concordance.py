"""Concordance of risks with the order of events: Harrell's C, and Uno's, which does not depend on the censoring.

C is the share of comparable pairs in which the patient with the earlier event has the higher risk; equal risks count
half. `pairs.py` states which pairs are comparable, and what happens at equal times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.statistics.survival.censoring import Censoring
from pipeline.evaluation.statistics.survival.follow_up import check_follow_up, check_risks
from pipeline.evaluation.statistics.survival.pairs import pair_counts


@dataclass(frozen=True)
class Concordance:
    """A concordance; None if no pair is comparable, with the reason."""

    value: float | None
    comparable: int
    """Pairs whose order is known; for Uno's C, those whose earlier event is before tau."""
    concordant: int
    """Pairs in which the patient with the earlier event has the higher risk."""
    tied: int
    """Pairs of equal risks."""
    reason: str | None = None
    """Why there is no value."""


def harrells_c(times_n: ArrayLike, events_n: ArrayLike, risks_n: ArrayLike) -> Concordance:
    """Harrell's C (JAMA 247:2543, 1982), as lifelines and scikit-survival compute it.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.
        risks_n: (patients,); higher means an earlier event. lifelines takes the opposite sign.

    Raises:
        ValueError: data as refused by `follow_up.check_follow_up`, no event, or a risk that is not finite.
    """
    times, events = check_follow_up(times_n, events_n)
    counts = pair_counts(times, events, check_risks(risks_n, times))
    comparable, concordant, tied = (
        int(part.sum()) for part in (counts.comparable_n, counts.concordant_n, counts.tied_n)
    )
    if not comparable:
        return _nothing_comparable("no patient was followed beyond the time of another's event")
    return Concordance((concordant + 0.5 * tied) / comparable, comparable, concordant, tied)


def unos_c(
    times_n: ArrayLike,
    events_n: ArrayLike,
    risks_n: ArrayLike,
    censoring: Censoring,
    *,
    tau: float | None = None,
) -> Concordance:
    """Uno's C (Stat Med 30:1105, 2011): pairs are weighted by 1 ÷ G(t)² of the earlier event's time t.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.
        risks_n: (patients,); higher means an earlier event.
        censoring: of the training patients.
        tau: only events before this time count; None: all. Choose it so that G(tau) is well above 0.

    Raises:
        ValueError: data as refused by `follow_up.check_follow_up`, no event, a risk that is not finite, a tau that is
            not above 0, or an event that counts at a time when no training patient was followed any more.
    """
    times, events = check_follow_up(times_n, events_n)
    risks = check_risks(risks_n, times)
    if tau is not None and not tau > 0:
        raise ValueError(f"tau is {tau:g}: give a time above 0, or None.")
    counts = pair_counts(times, events, risks)
    counted_n = events & (counts.comparable_n > 0) & (times < (np.inf if tau is None else tau))
    if not counted_n.any():
        limit = "" if tau is None else f" before tau ({tau:g})"
        return _nothing_comparable(f"no patient was followed beyond the time of another's event{limit}")
    comparable_c, concordant_c, tied_c = (
        part[counted_n] for part in (counts.comparable_n, counts.concordant_n, counts.tied_n)
    )
    weights_c = censoring.weights(times[counted_n]) ** 2
    value = float(weights_c @ (concordant_c + 0.5 * tied_c) / (weights_c @ comparable_c))
    return Concordance(value, int(comparable_c.sum()), int(concordant_c.sum()), int(tied_c.sum()))


def _nothing_comparable(why: str) -> Concordance:
    return Concordance(None, 0, 0, 0, f"No pair of patients is comparable: {why}.")
