"""Groups of patients by risk, split at a number that was fixed in training, and the survival of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.evaluation.statistics.survival.follow_up import check_finite, check_follow_up, check_groups
from pipeline.evaluation.statistics.survival.kaplan_meier import KaplanMeier, product_limit

RISK_GROUPS = ("low risk", "high risk")


@dataclass(frozen=True)
class RiskGroups:
    """Patients split into low and high risk."""

    groups_n: NDArray[np.int64]
    """Index of each patient's group in `RISK_GROUPS`, as `log_rank` and `group_curves` take it."""
    low: int
    """Number of patients."""
    high: int
    statement: str | None
    """What follows if a group is empty."""


@dataclass(frozen=True)
class GroupCurve:
    """Survival of one group; None if it has no patients."""

    name: str
    patients: int
    events: int
    curve: KaplanMeier | None


def split_by_risk(risks_n: ArrayLike, training_median: float) -> RiskGroups:
    """Split patients at the median risk of the training patients: high risk is at or above it.

    A test set's own median depends on all of its patients: a single new patient could not be assigned to a group.

    Raises:
        ValueError: no patients, or a risk or a median that is not finite.
    """
    risks = check_finite("risks", risks_n)
    if not len(risks):
        raise ValueError("there are no patients to split: give at least one risk.")
    if not np.isfinite(training_median):
        raise ValueError(f"the training median is {training_median}: give the median risk of the training patients.")
    groups_n = (risks >= training_median).astype(np.int64)
    high = int(groups_n.sum())
    low = len(risks) - high
    statement = None
    if not (low and high):
        empty, side = (RISK_GROUPS[1], "below") if low else (RISK_GROUPS[0], "at or above")
        statement = (
            f"No patient has {empty}: all {len(risks)} risks, {risks.min():g} to {risks.max():g}, are {side} the "
            f"training median, {training_median:g}, so the groups cannot be compared."
        )
    return RiskGroups(groups_n, low, high, statement)


def group_curves(
    times_n: ArrayLike, events_n: ArrayLike, groups_n: ArrayLike, group_names: Sequence[str]
) -> tuple[GroupCurve, ...]:
    """Kaplan and Meier's estimate in each group. A group without events has a curve at 1, one without patients none.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.
        groups_n: int (patients,), index of each patient's group in `group_names`.

    Raises:
        ValueError: a group without a name, data as refused by `follow_up.check_follow_up`, or no event in any group.
    """
    times, events = check_follow_up(times_n, events_n)
    groups = check_groups(groups_n, len(group_names), times)
    members = [groups == g for g in range(len(group_names))]
    return tuple(
        GroupCurve(
            name, int(own.sum()), int(events[own].sum()), product_limit(times[own], events[own]) if own.any() else None
        )
        for name, own in zip(group_names, members, strict=True)
    )
