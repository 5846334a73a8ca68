"""DeLong's variance of the area under the ROC curve, and the paired test of two models on the same cases.

DeLong, DeLong & Clarke-Pearson 1988 (Biometrics 44:837), by mid-ranks as in Sun & Xu 2014 (IEEE Signal Process Lett
21:1389). It assumes independent cases: one slide or patient each, never tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from pipeline.evaluation.statistics.bootstrap import CONFIDENCE

Z = float(norm.ppf((1 + CONFIDENCE) / 2))


@dataclass(frozen=True)
class DeLongAuc:
    """An AUC with its normal interval, clipped to 0…1."""

    auc: float
    standard_error: float
    low: float | None
    """None if the variance is zero (the classes are separated completely): the method then has no interval."""
    high: float | None


@dataclass(frozen=True)
class DeLongTest:
    """Two models on the same cases."""

    first: DeLongAuc
    second: DeLongAuc
    difference: float
    """AUC of the first minus that of the second."""
    standard_error: float
    low: float | None
    high: float | None
    p_value: float | None
    """Two-sided; None if the difference has no variance."""
    cases: int


def delong_covariance(
    truth: NDArray[np.bool_], scores_mn: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """AUCs (models,) and their covariance (models, models).

    Args:
        truth: bool (cases,), with at least two positives and two negatives. scores_mn: (models, cases).
    """
    positive, negative = (np.asarray(scores_mn[:, chosen], np.float64) for chosen in (truth, ~truth))
    m, n = positive.shape[1], negative.shape[1]
    among_all = rankdata(np.concatenate([positive, negative], axis=1), axis=1)
    beyond_own_positive = among_all[:, :m] - rankdata(positive, axis=1)  # negatives below each positive, ties as half
    beyond_own_negative = among_all[:, m:] - rankdata(negative, axis=1)
    v10, v01 = beyond_own_positive / n, 1 - beyond_own_negative / m
    covariance = np.atleast_2d(np.cov(v10)) / m + np.atleast_2d(np.cov(v01)) / n
    return v10.mean(1), covariance


def can_compare(truth: NDArray[np.bool_]) -> bool:
    """Whether there are two cases of each kind, which a variance needs."""
    return min(int(truth.sum()), int((~truth).sum())) >= 2


def delong_auc(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> DeLongAuc | None:
    """One model's AUC; None with fewer than two cases of a kind."""
    if not can_compare(truth):
        return None
    aucs, covariance = delong_covariance(truth, scores[None])
    return _auc(float(aucs[0]), float(covariance[0, 0]))


def delong_test(
    truth: NDArray[np.bool_], first: NDArray[np.floating], second: NDArray[np.floating]
) -> DeLongTest | None:
    """Paired test of two models on the same cases; None with fewer than two cases of a kind."""
    if not can_compare(truth):
        return None
    aucs, s = delong_covariance(truth, np.stack([first, second]))
    difference = float(aucs[0] - aucs[1])
    variance = float(s[0, 0] + s[1, 1] - 2 * s[0, 1])
    error = float(np.sqrt(max(variance, 0.0)))
    known = error > 1e-12
    return DeLongTest(
        first=_auc(float(aucs[0]), float(s[0, 0])),
        second=_auc(float(aucs[1]), float(s[1, 1])),
        difference=difference,
        standard_error=error,
        low=max(difference - Z * error, -1.0) if known else None,
        high=min(difference + Z * error, 1.0) if known else None,
        p_value=float(2 * norm.sf(abs(difference) / error)) if known else None,
        cases=len(truth),
    )


def _auc(auc: float, variance: float) -> DeLongAuc:
    error = float(np.sqrt(max(variance, 0.0)))
    if error <= 1e-12:
        return DeLongAuc(auc, 0.0, None, None)
    return DeLongAuc(auc, error, max(auc - Z * error, 0.0), min(auc + Z * error, 1.0))
