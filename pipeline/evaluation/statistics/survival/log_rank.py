"""The log-rank test of whether groups have the same survival (Mantel, Cancer Chemother Rep 50:163, 1966).

At each time of an event, the events expected in a group are all events shared by the numbers at risk. Observed minus
expected, summed over times, has the covariance of hypergeometric draws; its quadratic form is χ²-distributed if all
groups have the same survival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chi2

from pipeline.evaluation.statistics.bootstrap import Values
from pipeline.evaluation.statistics.survival.follow_up import check_follow_up, check_groups
from pipeline.evaluation.statistics.survival.kaplan_meier import numbers_at_risk

_ROUNDING = 1e-10
"""Eigenvalues of the covariance up to this share of the whole variance are rounding errors."""


@dataclass(frozen=True)
class ObservedEvents:
    """Events of one group, and how many it would have if all groups had the same survival."""

    name: str
    patients: int
    observed: int
    expected: float


@dataclass(frozen=True)
class LogRank:
    """The test's result; None if there is none, with the reason."""

    statistic: float | None
    p_value: float | None
    degrees_of_freedom: int
    """Groups minus one; fewer if some were never at risk together with others at the time of an event."""
    groups: tuple[ObservedEvents, ...]
    reason: str | None = None
    """Why there is no result."""


def log_rank(times_n: ArrayLike, events_n: ArrayLike, groups_n: ArrayLike, group_names: Sequence[str]) -> LogRank:
    """Test whether two or more groups have the same survival.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.
        groups_n: int (patients,), index of each patient's group in `group_names`.

    Raises:
        ValueError: fewer than two names, a group without a name, data as refused by `follow_up.check_follow_up`, or no
            event.
    """
    times, events = check_follow_up(times_n, events_n)
    if len(group_names) < 2:
        raise ValueError(f"the log-rank test compares groups, and {len(group_names)} is named: name at least two.")
    groups = check_groups(groups_n, len(group_names), times)
    times_e, at_e = np.unique(times[events], return_inverse=True)
    events_ge = np.zeros((len(group_names), len(times_e)))
    np.add.at(events_ge, (groups[events], at_e), 1)
    at_risk_ge = np.stack([numbers_at_risk(times[groups == g], times_e) for g in range(len(group_names))])
    excess_g, covariance_gg = _excess(events_ge, at_risk_ge.astype(np.float64))
    patients_g, observed_g = np.bincount(groups, minlength=len(group_names)), events_ge.sum(1)
    counts = tuple(
        ObservedEvents(name, int(patients_g[g]), int(observed_g[g]), float(observed_g[g] - excess_g[g]))
        for g, name in enumerate(group_names)
    )
    if empty := [group.name for group in counts if not group.patients]:
        return LogRank(None, None, 0, counts, f"Not tested: no patients in {', '.join(empty)}.")
    statistic, freedom = _quadratic_form(excess_g, covariance_gg)
    if not freedom:
        why = "Not tested: at each time of an event, one group alone was at risk, or all at risk had the event."
        return LogRank(None, None, 0, counts, why)
    return LogRank(statistic, float(chi2.sf(statistic, freedom)), freedom, counts)


def _excess(events_ge: Values, at_risk_ge: Values) -> tuple[Values, Values]:
    """Observed minus expected events, (groups,), and their covariance, (groups, groups)."""
    events_e, at_risk_e = events_ge.sum(0), at_risk_ge.sum(0)
    share_ge = at_risk_ge / at_risk_e
    # A single patient at risk has the event for certain.
    spread_e = events_e * (at_risk_e - events_e) / np.maximum(at_risk_e - 1, 1)
    scaled_ge = share_ge * spread_e
    covariance_gg = np.diag(scaled_ge.sum(1)) - scaled_ge @ share_ge.T
    return (events_ge - share_ge * events_e).sum(1), covariance_gg


def _quadratic_form(excess_g: Values, covariance_gg: Values) -> tuple[float, int]:
    """The χ² statistic and its degrees of freedom. The last group is left out: its excess follows from the others'."""
    variances, directions = np.linalg.eigh(covariance_gg[:-1, :-1])
    is_random = variances > _ROUNDING * max(1.0, float(np.trace(covariance_gg)))
    along = directions.T @ excess_g[:-1]
    return float((along[is_random] ** 2 / variances[is_random]).sum()), int(is_random.sum())
