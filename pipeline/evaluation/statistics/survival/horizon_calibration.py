"""Calibration of predicted survival at one horizon: the mean prediction of similar patients beside their own survival.

Bins hold equally many patients, as far as equal predictions allow (`calibration.equal_mass_bins`). What happened in a
bin is Kaplan and Meier's estimate at the horizon, which censored patients contribute to for as long as they were
followed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.statistics.bootstrap import Values
from pipeline.evaluation.statistics.calibration import equal_mass_bins
from pipeline.evaluation.statistics.survival.follow_up import Events, check_follow_up, check_horizons, check_shares
from pipeline.evaluation.statistics.survival.kaplan_meier import product_limit


@dataclass(frozen=True)
class SurvivalBin:
    """Patients of neighbouring predictions."""

    lowest: float
    highest: float
    count: int
    events: int
    """Events up to the horizon."""
    mean_predicted: float
    observed: float | None
    """Survival up to the horizon; None if nobody in the bin was followed for so long."""
    low: float | None
    """95 % limits; None where Kaplan and Meier's estimate has none: at 0, and at 1."""
    high: float | None


def survival_calibration(
    times_n: ArrayLike, events_n: ArrayLike, predicted_n: ArrayLike, horizon: float, *, bins: int
) -> tuple[SurvivalBin, ...]:
    """Predicted and observed survival up to a horizon, in bins of ascending predictions.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.
        predicted_n: predicted probability of no event up to the horizon, (patients,).
        bins: number of bins; fewer if many predictions are equal.

    Raises:
        ValueError: data as refused by `follow_up.check_follow_up`, no event, a horizon that is not above 0 or that
            nobody was followed up to, probabilities outside 0 to 1, or fewer than one bin.
    """
    times, events = check_follow_up(times_n, events_n)
    predicted = check_shares("predicted survivals", predicted_n, times.shape)
    check_horizons([horizon])
    if horizon > times.max():
        raise ValueError(
            f"horizon {horizon:g} is after the longest follow-up, {times.max():g}: choose one that patients reached."
        )
    if bins < 1:
        raise ValueError(f"{bins} bins: give at least one.")
    bin_n = equal_mass_bins(predicted, bins)
    members = [bin_n == b for b in range(int(bin_n.max()) + 1)]
    return tuple(_summarise(times[own], events[own], predicted[own], horizon) for own in members)


def _summarise(times_n: Values, events_n: Events, predicted_n: Values, horizon: float) -> SurvivalBin:
    survival, low, high = (_known(values[0]) for values in product_limit(times_n, events_n).at([horizon]))
    return SurvivalBin(
        lowest=float(predicted_n.min()),
        highest=float(predicted_n.max()),
        count=len(times_n),
        events=int((events_n & (times_n <= horizon)).sum()),
        mean_predicted=float(predicted_n.mean()),
        observed=survival,
        low=low,
        high=high,
    )


def _known(value: np.float64) -> float | None:
    return float(value) if np.isfinite(value) else None
