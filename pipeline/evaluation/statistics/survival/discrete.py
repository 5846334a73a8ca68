"""Survival curves from the hazards of a discrete-time model: probabilities of an event in each bin of time.

Survival to the end of a bin is Π (1 − hazard) over the bins up to it. Within a bin the hazard is constant in continuous
time, so that log survival falls linearly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.statistics.bootstrap import Values
from pipeline.evaluation.statistics.survival.follow_up import check_finite, check_shares


def discrete_survival(hazards_nb: ArrayLike, upper_bounds_b: ArrayLike, times_t: ArrayLike) -> Values:
    """Predicted probability of no event up to each time, (patients, times).

    Args:
        hazards_nb: probability of an event in each bin for those who reached it, (patients, bins).
        upper_bounds_b: end of each bin, which belongs to it, ascending; the first bin begins at 0. The last may be
            infinite.
        times_t: (times,), from 0, in any order.

    Raises:
        ValueError: hazards of another shape or outside 0 to 1, bounds that do not ascend from above 0, a time below 0,
            or one for which no bin says when in it events happen: after the last bound, or in a bin without end.
    """
    bounds = np.asarray(upper_bounds_b, np.float64)
    if bounds.ndim != 1 or not len(bounds) or not np.isfinite(bounds[:-1]).all() or not _ascend_from_0(bounds):
        raise ValueError(
            f"bounds {bounds.tolist()} are not the ends of bins of time: give one row, ascending from above 0, only "
            "the last of which may be infinite."
        )
    times = check_finite("times", times_t)
    hazards = np.asarray(hazards_nb, np.float64)
    hazards = check_shares("hazards", hazards, (hazards.shape[0] if hazards.ndim else 0, len(bounds)))
    last = float(bounds[np.isfinite(bounds)].max(initial=0))
    if len(times) and (times.min() < 0 or times.max() > last):
        raise ValueError(
            f"times reach from {times.min():g} to {times.max():g}, and survival is known from 0 to {last:g}, the last "
            "finite bound: choose times between them."
        )
    bin_t = np.searchsorted(bounds, times, side="left")
    lower_b = np.concatenate([[0.0], bounds[:-1]])
    part_t = (times - lower_b[bin_t]) / (bounds - lower_b)[bin_t]
    reached_nb = np.cumprod(np.concatenate([np.ones((len(hazards), 1)), 1 - hazards[:, :-1]], axis=1), axis=1)
    return np.asarray(reached_nb[:, bin_t] * (1 - hazards[:, bin_t]) ** part_t, np.float64)


def _ascend_from_0(bounds_b: Values) -> bool:
    return bool(bounds_b[0] > 0 and (np.diff(bounds_b) > 0).all())
