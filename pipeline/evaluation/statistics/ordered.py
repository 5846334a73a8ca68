"""Measures of predicted numbers: R² and mean absolute error. For grades, `agreement.cohens_kappa` has the weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline.evaluation.statistics.bootstrap import Values


def r_squared(truth_n: ArrayLike, predicted_n: ArrayLike) -> float | None:
    """Share of the variance of the true values that predictions explain; below 0 if the mean would explain more.

    Args:
        truth_n, predicted_n: (items,), in the same unit.

    Returns:
        None if all true values are the same, which includes a single one.

    Raises:
        ValueError: different lengths, no items, NaN or infinite values.
    """
    from sklearn.metrics import r2_score  # slow to import, and the app need not wait for it to start

    truth, predicted = _check(truth_n, predicted_n)
    return float(r2_score(truth, predicted)) if np.ptp(truth) > 0 else None


def mean_absolute_error(truth_n: ArrayLike, predicted_n: ArrayLike) -> float:
    """Mean distance of predictions from the true values, in their unit.

    Args:
        truth_n, predicted_n: (items,), in the same unit.

    Raises:
        ValueError: different lengths, no items, NaN or infinite values.
    """
    truth, predicted = _check(truth_n, predicted_n)
    return float(np.abs(truth - predicted).mean())


def _check(truth_n: ArrayLike, predicted_n: ArrayLike) -> tuple[Values, Values]:
    truth, predicted = np.asarray(truth_n, np.float64), np.asarray(predicted_n, np.float64)
    if truth.ndim != 1 or truth.shape != predicted.shape or not len(truth):
        raise ValueError(
            f"true values are of shape {truth.shape}, predicted ones of {predicted.shape}: give one row of each, not "
            "empty and of the same length."
        )
    wrong = ~np.isfinite(truth) | ~np.isfinite(predicted)
    if wrong.any():
        raise ValueError(
            f"{int(wrong.sum())} of {len(truth)} items have a true or predicted value that is not finite, the first at "
            f"index {int(np.argmax(wrong))}: leave out items without a value."
        )
    return truth, predicted
