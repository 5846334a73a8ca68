"""The ROC curve of every resample, one after another, holding only the running sums of each.

Items of one class with the same score and patient are one entry, with their number. A resample weights entries by how
often it drew their patients; a curve and its area need only the sums over the entries, from the highest score down. Two
thousand resamples of 100,000 slides take a second or two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.bootstrap import Resamples, Values, in_blocks

Indices = NDArray[np.int64]
_TOLERANCE = 1e-9
"""Sums of weights are whole numbers; fractions of them may be rounded."""


@dataclass(frozen=True)
class _Entries:
    """One class's items, from the highest score down."""

    rank: Indices
    """Rank of the score among all distinct scores; 0 is the highest."""
    patient: Indices
    number: Indices | None
    """Number of items in each entry; None if it is always one."""

    @classmethod
    def of(cls, rank: Indices, patient: Indices, num_patients: int) -> _Entries:
        key, number = np.unique(rank * num_patients + patient, return_counts=True)
        is_one = bool((number == 1).all())
        return cls(key // num_patients, key % num_patients, None if is_one else number.astype(np.int64))

    def weights(self, counts_p: NDArray[np.unsignedinteger]) -> NDArray[np.integer]:
        """Number of items of each entry in a resample."""
        drawn = counts_p.take(self.patient)
        return drawn if self.number is None else drawn * self.number


class ResampledRoc:
    """ROC curves of one class against the rest, in every resample.

    Args:
        truth: bool (items,). scores: (items,).
    """

    def __init__(self, truth: NDArray[np.bool_], scores: NDArray[np.floating], resamples: Resamples) -> None:
        distinct, ascending = np.unique(scores, return_inverse=True)
        rank = len(distinct) - 1 - ascending.astype(np.int64)
        patients = resamples.counts_rp.shape[1]
        self._counts_rp = resamples.counts_rp
        self._positives = _Entries.of(rank[truth], resamples.patient_of[truth], patients)
        self._negatives = _Entries.of(rank[~truth], resamples.patient_of[~truth], patients)
        self._num_scores = len(distinct)

    def aucs(self) -> Values:
        """Area under each curve, (resamples,); ties count as half. NaN where a class does not occur."""
        before = np.searchsorted(self._negatives.rank, self._positives.rank, side="left")
        through = np.searchsorted(self._negatives.rank, self._positives.rank, side="right")
        areas = np.full(len(self._counts_rp), np.nan)

        def measure(block: range) -> None:
            for index in block:
                counts_p = self._counts_rp[index]
                weights = self._positives.weights(counts_p).astype(np.float64)
                negatives = _sums(self._negatives.weights(counts_p))
                pairs = weights.sum() * negatives[-1]
                if pairs:
                    # A positive is above the negatives that are not before it, and half of those with the same score.
                    areas[index] = 1 - weights @ (negatives[before] + negatives[through]) / (2 * pairs)

        in_blocks(len(areas), measure)
        return areas

    def tprs(self, fpr_grid: Values) -> Values:
        """Each curve at given false positive rates, (resamples, points); NaN where a class does not occur."""
        # Entries of each class at or above each score, starting with none: the corners of a curve.
        corners_n, corners_p = (
            np.searchsorted(entries.rank, np.arange(self._num_scores + 1), side="left")
            for entries in (self._negatives, self._positives)
        )
        last_of = np.searchsorted(corners_n, np.arange(len(self._negatives.rank) + 1), side="right") - 1
        rates = np.full((len(self._counts_rp), len(fpr_grid)), np.nan)

        def measure(block: range) -> None:
            for index in block:
                fp, tp = (_sums(side.weights(self._counts_rp[index])) for side in (self._negatives, self._positives))
                if not (fp[-1] and tp[-1]):
                    continue
                x = fpr_grid * fp[-1]
                corner = last_of[np.searchsorted(fp, x + _TOLERANCE, side="right") - 1]
                after = np.minimum(corner + 1, self._num_scores)
                x0, x1, y0, y1 = (
                    fp[corners_n[corner]],
                    fp[corners_n[after]],
                    tp[corners_p[corner]],
                    tp[corners_p[after]],
                )
                share = np.divide(x - x0, x1 - x0, out=np.zeros_like(x), where=x1 > x0)
                rates[index] = (y0 + np.clip(share, 0, 1) * (y1 - y0)) / tp[-1]

        in_blocks(len(rates), measure)
        return rates


def _sums(weights: NDArray[np.integer]) -> Indices:
    """Cumulative sums of the entries, starting with 0, as integers, which add up three times as fast as floats."""
    sums = np.zeros(len(weights) + 1, np.int64)
    np.cumsum(weights, out=sums[1:])
    return sums
