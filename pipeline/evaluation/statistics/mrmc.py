"""Areas under ROC curves of several readers over several cases, both treated as samples (MRMC).

The variance is the unbiased one of U-statistics: Gallas, Academic Radiology 13, 2006; for an arbitrary design, in
which not every reader reads every case (split-plot), Gallas and Brown, Neural Networks 21, 2008. An area is the mean of
[positive scored above negative] over all triples of a reader, a negative and a positive that this reader read; its
variance is a sum of eight moments, one for each way in which two triples can share reader, negative and positive.
Degrees of freedom follow Satterthwaite, from readers, negatives and positives, as in iMRMC 4.0 ("BDG").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pipeline.evaluation.statistics.bootstrap import CONFIDENCE
from training.foundation.errors import EmptyTableError
from training.foundation.words.counts import counted

Values = NDArray[np.float64]
_NO_ERROR = 1e-9
"""A standard error up to this is a rounding error."""


@dataclass(frozen=True)
class ArmScores:
    """Scores of readers under one condition; NaN where a reader did not read a case."""

    negatives_rc: Values
    """(readers, negative cases)."""
    positives_rc: Values
    """(readers, positive cases)."""


@dataclass(frozen=True)
class MrmcEstimate:
    """An area, or a difference of two, with its interval over readers and cases."""

    value: float
    variance: float
    degrees_of_freedom: float
    low: float | None
    high: float | None
    """Limit of the Student's t interval, which can reach beyond 0 and 1 if little was read. None without a variance:
    if all readers separate all cases, these cannot show how others would differ."""
    p_value: float | None
    """For the hypothesis that an area is 0.5, or a difference 0; two-sided. None without a variance."""
    by_reader: tuple[float, ...]
    """NaN for a reader without a pair of cases."""


def mrmc_auc(arm: ArmScores) -> MrmcEstimate:
    """Mean area of all readers.

    Raises:
        EmptyTableError: fewer than two readers, negatives or positives, or no reader has both.
    """
    outcomes = _outcomes(arm)
    design = _design(arm)
    _check(design)
    variance = _covariance(outcomes, outcomes, design, design)
    return _estimate([(outcomes, design)], variance, expected=0.5)


def mrmc_difference(one: ArmScores, other: ArmScores) -> MrmcEstimate:
    """Area of the first condition minus that of the second, with the same readers and cases in both.

    Raises:
        EmptyTableError: as `mrmc_auc`. ValueError: readers or cases differ.
    """
    if one.negatives_rc.shape != other.negatives_rc.shape or one.positives_rc.shape != other.positives_rc.shape:
        raise ValueError("both conditions need the same readers and cases, in the same order")
    arms = [(_outcomes(arm), _design(arm)) for arm in (one, other)]
    for _, design in arms:
        _check(design)
    (first, design), (second, other_design) = arms
    variance = (
        _covariance(first, first, design, design)
        + _covariance(second, second, other_design, other_design)
        - 2 * _covariance(first, second, design, other_design)
    )
    return _estimate(arms, variance, expected=0.0)


def _outcomes(arm: ArmScores) -> Values:
    """1 where the positive has the higher score, 0.5 where they are equal, 0 elsewhere; (readers, negatives,
    positives)."""
    difference = arm.positives_rc[:, None, :] - arm.negatives_rc[:, :, None]
    return np.where(np.isnan(difference), 0.0, (difference > 0) + 0.5 * (difference == 0))


def _design(arm: ArmScores) -> Values:
    """1 where a reader read both cases."""
    return (~np.isnan(arm.negatives_rc)[:, :, None] & ~np.isnan(arm.positives_rc)[:, None, :]).astype(np.float64)


def _check(design: Values) -> None:
    _, negatives, positives = design.shape
    read = design.any((1, 2)).sum()
    if read < 2 or negatives < 2 or positives < 2:
        readers = counted(int(read), "reader")
        raise EmptyTableError(
            f"reader study: {readers} with both kinds of cases, {counted(negatives, 'negative')} and "
            f"{counted(positives, 'positive')}; an area over readers and cases needs at least two of each."
        )


def _covariance(one: Values, other: Values, design: Values, other_design: Values) -> float:
    """Covariance of two areas over the same readers and cases."""
    pairs = _sums_by_what_is_shared(design, other_design)
    products = _sums_by_what_is_shared(one, other)
    moments = np.divide(products, pairs, out=np.zeros(8), where=pairs > 0)
    coefficients = pairs / (design.sum() * other_design.sum())
    coefficients[-1] -= 1  # minus the product of the areas, which is estimated from pairs that share nothing
    return float(moments @ coefficients)


def _sums_by_what_is_shared(one: Values, other: Values) -> Values:
    """Sums of products over pairs of triples: with the same reader and the same negative and positive, the same
    negative, the same positive, neither; then the same four with another reader."""
    same_reader = np.sum([_four(*pair) for pair in zip(one, other, strict=True)], axis=0)
    return np.concatenate([same_reader, _four(one.sum(0), other.sum(0)) - same_reader])


def _four(one: Values, other: Values) -> Values:
    both = float((one * other).sum())
    negative = float(one.sum(1) @ other.sum(1))
    positive = float(one.sum(0) @ other.sum(0))
    every = float(one.sum() * other.sum())
    return np.array([both, negative - both, positive - both, every - negative - positive + both])


def _estimate(arms: list[tuple[Values, Values]], variance: float, *, expected: float) -> MrmcEstimate:
    """Estimate for the area of one arm, or the difference of two."""
    signs = (1.0, -1.0)
    areas = [float(outcomes.sum() / design.sum()) for outcomes, design in arms]
    value = float(np.dot(signs[: len(areas)], areas))
    freedom = _degrees_of_freedom(arms, areas, variance)
    error = float(np.sqrt(max(variance, 0.0)))
    # Rounded down, as in iMRMC: the interval is slightly wider, never narrower.
    whole = max(1.0, np.floor(freedom))
    low = high = p_value = None
    if error > _NO_ERROR:
        reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, whole)) * error
        low, high = value - reach, value + reach
        p_value = float(2 * stats.t.sf(abs(value - expected) / error, whole))
    by_reader = np.zeros(len(arms[0][0]))
    with np.errstate(invalid="ignore", divide="ignore"):
        for sign, (outcomes, design) in zip(signs, arms, strict=False):
            by_reader += sign * outcomes.sum((1, 2)) / design.sum((1, 2))
    return MrmcEstimate(value, variance, freedom, low, high, p_value, tuple(by_reader.tolist()))


def _degrees_of_freedom(arms: list[tuple[Values, Values]], areas: list[float], variance: float) -> float:
    """Satterthwaite's degrees of freedom, from the contribution of each reader, negative and positive to the area."""
    parts = 0.0
    for axes in ((1, 2), (0, 2), (0, 1)):
        adds = np.zeros(())
        for sign, (outcomes, design), area in zip((1.0, -1.0), arms, areas, strict=False):
            adds = adds + sign * (outcomes - area * design).sum(axes) / design.sum()
        count = int(arms[0][1].any(axes).sum())
        parts += (count / (count - 1) * float((adds**2).sum())) ** 2 / (count - 1)
    return variance**2 / parts if parts else float("inf")
