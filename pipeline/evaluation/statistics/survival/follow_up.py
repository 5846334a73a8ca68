"""Checks of follow-up data before anything is computed from them: times, events, risks, horizons.

Times have any one unit, the same throughout. A patient whose event is False was followed without one up to that time
(right censoring). Higher risks mean earlier events.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.evaluation.statistics.bootstrap import Values

Events = NDArray[np.bool_]


def check_follow_up(times_n: ArrayLike, events_n: ArrayLike, *, need_event: bool = True) -> tuple[Values, Events]:
    """Times and events of patients, (patients,) each, as float64 and bool.

    Args:
        times_n: time of the event, or of the end of follow-up without one; above 0.
        events_n: bool; whether the event was observed.
        need_event: whether data without any event are refused.

    Raises:
        ValueError: no patient, different lengths, a time that is not finite and above 0, events that are not bool, or
            no event.
    """
    times, events = check_finite("times", times_n), np.asarray(events_n)
    if not len(times):
        raise ValueError("there are no patients: give at least one time.")
    if events.dtype != np.bool_:
        raise ValueError(f"events are of type {events.dtype}, not bool: give True for an event and False for none.")
    check_length("events", events, times)
    too_early = np.flatnonzero(times <= 0)
    if len(too_early):
        raise ValueError(
            f"times: {len(too_early)} of {len(times)} are not above 0, the first is {times[too_early[0]]:g} at index "
            f"{too_early[0]}: count time from before each patient's follow-up, or leave these patients out."
        )
    if need_event and not events.any():
        raise ValueError(
            f"none of the {len(times)} patients has an event, and without one nothing about survival can be measured: "
            "follow them for longer, or add patients."
        )
    return times, events


def check_risks(risks_n: ArrayLike, times_n: Values) -> Values:
    """Risks of the patients as float64, (patients,).

    Raises:
        ValueError: not as many as times, or not finite.
    """
    risks = check_finite("risks", risks_n)
    check_length("risks", risks, times_n)
    return risks


def check_groups(groups_n: ArrayLike, num_groups: int, times_n: Values) -> NDArray[np.int64]:
    """Group of each patient as int64, (patients,).

    Raises:
        ValueError: not as many as times, not whole numbers, or not below `num_groups`.
    """
    groups = np.asarray(groups_n)
    check_length("groups", groups, times_n)
    if not np.issubdtype(groups.dtype, np.integer):
        raise ValueError(f"groups are of type {groups.dtype}, not integer: give each patient's index of a group name.")
    if len(groups) and not (groups.min() >= 0 and groups.max() < num_groups):
        raise ValueError(
            f"groups reach from {groups.min()} to {groups.max()}, and only 0 to {num_groups - 1} have a name: name all "
            "groups."
        )
    return groups.astype(np.int64)


def check_horizons(horizons_h: ArrayLike) -> Values:
    """Horizons as float64, (horizons,).

    Raises:
        ValueError: none, or not finite, above 0 and ascending.
    """
    horizons = check_finite("horizons", horizons_h)
    if not len(horizons) or horizons[0] <= 0 or (np.diff(horizons) <= 0).any():
        raise ValueError(f"horizons {horizons.tolist()} are not above 0 and ascending: give at least one, each once.")
    return horizons


def check_shares(name: str, shares: ArrayLike, shape: tuple[int, ...]) -> Values:
    """Probabilities as float64, of the given shape.

    Raises:
        ValueError: another shape, or not all from 0 to 1.
    """
    values = np.asarray(shares, np.float64)
    if values.shape != shape:
        raise ValueError(
            f"{name} are of shape {values.shape}, not {shape}: give one per patient, and one column per horizon or bin."
        )
    wrong = ~((values >= 0) & (values <= 1))  # true for NaN
    if wrong.any():
        raise ValueError(
            f"{name}: {int(wrong.sum())} of {values.size} are not between 0 and 1, the first is {values[wrong][0]:g}: "
            "give probabilities."
        )
    return values


def check_finite(name: str, numbers: ArrayLike) -> Values:
    """A row of numbers as float64.

    Raises:
        ValueError: not one-dimensional, NaN or infinite.
    """
    values = np.asarray(numbers, np.float64)
    if values.ndim != 1:
        raise ValueError(f"{name} are of shape {values.shape}, not (number,): give one row of numbers.")
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(
            f"{name}: {len(wrong)} of {len(values)} are not finite, the first is {values[wrong[0]]} at index "
            f"{wrong[0]}: leave out patients without a value."
        )
    return values


def check_length(name: str, values: NDArray[np.generic], others: NDArray[np.generic]) -> None:
    """Refuse a row of another length.

    Raises:
        ValueError: another shape than `others`.
    """
    if values.shape != others.shape:
        raise ValueError(
            f"{name} are of shape {values.shape}, the other values of {others.shape}: give one per patient, in the "
            "same order."
        )
