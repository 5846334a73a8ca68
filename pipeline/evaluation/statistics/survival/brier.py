"""The Brier score of predicted survival at horizons, and its mean over time (Graf et al., Stat Med 18:2529, 1999).

At a horizon t, a patient with an event up to t should have survival 0, a patient followed beyond t survival 1; the
score is the mean of the squared errors. Patients censored up to t have no weight; the others are weighted by 1 ÷ G of
their event's time, or of t, in their place (`censoring.py`). A prediction of 0.5 for everybody has about 0.25.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.statistics.bootstrap import Values
from pipeline.evaluation.statistics.survival.censoring import Censoring
from pipeline.evaluation.statistics.survival.follow_up import check_follow_up, check_horizons, check_shares


def brier_scores(
    times_n: ArrayLike, events_n: ArrayLike, survival_nh: ArrayLike, horizons_h: ArrayLike, censoring: Censoring
) -> Values:
    """Brier score at each horizon, (horizons,); lower is better.

    Args:
        times_n: (patients,), above 0. events_n: bool (patients,); False if censored.
        survival_nh: predicted probability of no event up to each horizon, (patients, horizons).
        horizons_h: ascending times, all before the longest follow-up of these patients.
        censoring: of the training patients.

    Raises:
        ValueError: data as refused by `follow_up.check_follow_up`, no event, probabilities of another shape or outside
            0 to 1, or a horizon that these or the training patients' follow-up does not reach.
    """
    times, events = check_follow_up(times_n, events_n)
    horizons = check_horizons(horizons_h)
    survival = check_shares("predicted survivals", survival_nh, (len(times), len(horizons)))
    if horizons[-1] >= times.max():
        raise ValueError(
            f"horizon {horizons[-1]:g} is not before the longest follow-up, {times.max():g}, so no patient is known to "
            "be without an event beyond it: choose earlier horizons."
        )
    counted_n = events & (times <= horizons[-1])
    weights_n = np.zeros(len(times))
    weights_n[counted_n] = censoring.weights(times[counted_n])
    is_past_nh = times[:, None] <= horizons
    errors_nh = np.where(
        is_past_nh, weights_n[:, None] * survival**2, censoring.weights(horizons) * (1 - survival) ** 2
    )
    return np.asarray(errors_nh.mean(0), np.float64)


def integrated_brier_score(scores_h: Values, horizons_h: ArrayLike) -> float:
    """Mean Brier score from the first to the last horizon, by the trapezoidal rule.

    Args:
        scores_h: as of `brier_scores`.

    Raises:
        ValueError: fewer than two horizons, or not as many as scores.
    """
    horizons = check_horizons(horizons_h)
    if len(horizons) < 2 or np.shape(scores_h) != horizons.shape:
        raise ValueError(
            f"{len(horizons)} horizons for scores of shape {np.shape(scores_h)}: give the horizons of the scores, at "
            "least two."
        )
    return float(np.trapezoid(scores_h, horizons) / (horizons[-1] - horizons[0]))
