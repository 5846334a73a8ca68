"""Exact intervals (Clopper & Pearson, Biometrika 26, 1934) for shares and areas, where the bootstrap shows too little.

At 0 and 100 %, every resample has the same share, and a percentile interval would be a point: "1.000 to 1.000" leaves
no doubt. The exact interval reflects what this many independent cases can show. Items of one patient are correlated,
so it counts patients, not slides or tiles: if 20 patients are without an error, the share of patients without one is at
least 83 %, however many tiles each has.

With one error, resamples vary, but those of few patients vary too little: the interval of 19 right of 20 would reach
down to 85 %, less far than that of 20 right, and an error would make a result better. So an interval of resamples is
widened where an end is better than that of a perfect result of as many patients: its lower end is at most the exact
lower end without an error, its upper end at least the exact upper end with nothing but errors.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.bootstrap import CONFIDENCE, Estimate, Resamples, Values, estimate


def exact_interval(hits: int, number: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Limits of the share `hits` of `number` independent cases; `number` is at least 1."""
    from scipy.stats import binomtest  # slow to import, and the app need not wait for it to start

    interval = binomtest(hits, number).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def share(part_n: NDArray[np.bool_], among_n: NDArray[np.bool_], resamples: Resamples) -> Estimate:
    """Share of `part_n` among the items of `among_n`, both bool (items,): by bootstrap, else exact if applicable."""
    if not among_n.any():
        return Estimate(None)
    by_patient = resamples.sum_by_patient(np.stack([part_n & among_n, among_n], axis=1).astype(np.float64))
    totals = resamples.totals(by_patient)
    shares = np.divide(totals[:, 0], totals[:, 1], out=np.full(len(totals), np.nan), where=totals[:, 1] > 0)
    measured = estimate(float((part_n & among_n).sum() / among_n.sum()), shares)
    return exact_where_none(measured, by_patient[:, 0], by_patient[:, 1])


def exact_where_none(measured: Estimate, hits_p: Values, among_p: Values) -> Estimate:
    """A share with the exact interval over patients if the bootstrap gave none, else no better than a perfect one's.

    The exact interval is given if all items agree or every patient has one item. Otherwise, a share over few patients
    with several items each has no valid interval.

    Args:
        hits_p, among_p: hits and counted items of each patient.
    """
    if measured.value is None:
        return measured
    counted = among_p > 0
    hits, among = hits_p[counted], among_p[counted]
    if measured.low is not None:
        return _no_better_than_perfect(measured, _ends_of_extremes(len(among)))
    if measured.value not in (0.0, 1.0) and (among > 1).any():
        return measured
    low, high = exact_interval(int((hits == among).sum()), len(among))
    return Estimate(measured.value, low, high, measured.resamples, is_exact=True)


def exact_mean_where_none(measured: Estimate, hits_pk: Values, among_pk: Values) -> Estimate:
    """A mean of shares, one per class: if all are 0 or all 1 with an interval of at least 95 % coverage, else no better
    than a perfect one's.

    Each share's exact limits use its part of the error (Bonferroni); the limits of the mean are the mean of the limits.

    Args:
        hits_pk, among_pk: hits and counted items of each patient and class.
    """
    if measured.value is None:
        return measured
    patients_k = (among_pk > 0).sum(0)
    occurring = patients_k[patients_k > 0].tolist()
    confidence = 1 - (1 - CONFIDENCE) / len(occurring)
    ends = np.mean([_ends_of_extremes(number, confidence) for number in occurring], axis=0)
    return _extreme_or_bounded(measured, (float(ends[0]), float(ends[1])))


def exact_area_where_none(measured: Estimate, truth_n: NDArray[np.bool_], patient_of: NDArray[np.int64]) -> Estimate:
    """An area under the ROC curve: of 0 or 1 (classes separated completely) with an exact interval, else no better than
    a perfect one's, unless patients have items of both classes: then the pairs are too few to bound resamples by.

    The area is how often a positive scores above a negative. Pairs of a positive and a negative that use no patient
    twice are independent, and all of them have the same outcome.

    Args:
        truth_n: bool (items,). patient_of: index of each item's patient, (items,).
    """
    positive, negative = set(patient_of[truth_n].tolist()), set(patient_of[~truth_n].tolist())
    pairs = min(len(positive), len(negative), len(positive | negative) // 2)
    if not pairs:  # all items are from one patient
        return measured
    if measured.low is not None and positive & negative:
        return measured
    return _extreme_or_bounded(measured, _ends_of_extremes(pairs))


def _ends_of_extremes(number: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact lower end of a share of 1, and exact upper end of a share of 0, of `number` independent cases."""
    low, _ = exact_interval(number, number, confidence=confidence)
    _, high = exact_interval(0, number, confidence=confidence)
    return low, high


def _extreme_or_bounded(measured: Estimate, ends: tuple[float, float]) -> Estimate:
    """The exact interval of a 0 or 1 that has none, else the interval of resamples, no better than a perfect one's.

    Args:
        ends: as of `_ends_of_extremes`.
    """
    if measured.low is not None or measured.value not in (0.0, 1.0):
        return _no_better_than_perfect(measured, ends)
    low, high = (ends[0], 1.0) if measured.value == 1 else (0.0, ends[1])
    return Estimate(measured.value, low, high, measured.resamples, is_exact=True)


def _no_better_than_perfect(measured: Estimate, ends: tuple[float, float]) -> Estimate:
    """The interval of resamples, widened where an end is better than that of a perfect result, or of 0.

    Args:
        ends: as of `_ends_of_extremes`.
    """
    if measured.low is None or measured.high is None:
        return measured
    return replace(measured, low=min(measured.low, ends[0]), high=max(measured.high, ends[1]))
