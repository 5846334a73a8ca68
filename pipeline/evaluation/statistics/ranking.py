"""Measures based on the order of scores, for the data and for all resamples: ROC, precision and recall, net benefit.

Items are sorted once. A resample weights patients; its numbers of positives and negatives at each score are one product
of a sparse matrix (scores × patients) with the weights, so a thousand resamples of 100,000 tiles take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.evaluation.statistics.bootstrap import Resamples, Values

_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Counts:
    """True and false positives at each distinct score and above, from the highest score down.

    Attributes:
        tp, fp: float64 (resamples, scores), sums of weights.
    """

    tp: Values
    fp: Values

    @property
    def positives(self) -> Values:
        return self.tp[:, -1]

    @property
    def negatives(self) -> Values:
        return self.fp[:, -1]

    def roc(self) -> tuple[Values, Values]:
        """False and true positive rate, from (0, 0) on; NaN without negatives or positives."""
        return _rate(_from_zero(self.fp), self.negatives), _rate(_from_zero(self.tp), self.positives)

    def average_precision(self) -> Values:
        """Σ (R_n − R_(n−1)) P_n, as scikit-learn defines it; NaN without positives."""
        gained = np.diff(_from_zero(self.tp), axis=1)
        precision = np.divide(self.tp, self.tp + self.fp, out=np.zeros_like(self.tp), where=self.tp + self.fp > 0)
        return np.where(self.negatives > 0, _divide((gained * precision).sum(1), self.positives), np.nan)

    def sensitivity_at(self, specificity: float) -> Values:
        """Highest sensitivity of any threshold with at least this specificity; NaN where a class does not occur."""
        fpr, tpr = self.roc()
        allowed = fpr <= 1 - specificity + _TOLERANCE
        best = np.where(allowed, tpr, 0.0).max(1)
        return np.where((self.positives > 0) & (self.negatives > 0), best, np.nan)

    def precision_on(self, recall_grid: Values) -> Values:
        """Precision of the highest threshold that reaches each recall, (resamples, points)."""
        recall = _rate(self.tp, self.positives)
        precision = _divide(self.tp, self.tp + self.fp)
        last = recall.shape[1] - 1
        at = [np.minimum(np.searchsorted(row, recall_grid - _TOLERANCE), last) for row in recall]
        values = np.array([row[index] for row, index in zip(precision, at, strict=True)])
        return np.where((self.positives > 0)[:, None], values.reshape(-1, len(recall_grid)), np.nan)


class Ranking:
    """Items of one class against the rest, sorted by score.

    Args:
        truth: bool (items,). scores: (items,). resamples: draws, and the patient of each item.
    """

    def __init__(self, truth: NDArray[np.bool_], scores: NDArray[np.floating], resamples: Resamples) -> None:
        self.resamples = resamples
        ascending, inverse = np.unique(np.asarray(scores, np.float64), return_inverse=True)
        self.scores: Values = ascending[::-1]
        """The distinct scores, highest first."""
        at = len(ascending) - 1 - inverse
        shape = (len(ascending), max(resamples.counts_rp.shape[1], 1))
        self._positive_tp = _tally(at[truth], resamples.patient_of[truth], shape)
        self._negative_tp = _tally(at[~truth], resamples.patient_of[~truth], shape)

    def counts(self, counts_rp: Values | None = None) -> Counts:
        """Counts for some resamples; None: for the data themselves (one row)."""
        weights = np.ones((1, self._positive_tp.shape[1])) if counts_rp is None else counts_rp
        tp, fp = ((matrix @ weights.T).T.cumsum(1) for matrix in (self._positive_tp, self._negative_tp))
        return Counts(tp, fp)

    def pieces(self) -> Iterator[Values]:
        """The resamples' weights, in pieces whose counts fit in memory."""
        return self.resamples.pieces(len(self.scores))


def _tally(at: NDArray[np.int64], patient: NDArray[np.int64], shape: tuple[int, int]) -> sparse.csr_matrix:
    """Count the items of each patient at each score."""
    return sparse.coo_matrix((np.ones(len(at)), (at, patient)), shape=shape).tocsr()


def _from_zero(cumulative: Values) -> Values:
    return np.concatenate([np.zeros((len(cumulative), 1)), cumulative], axis=1)


def _rate(cumulative: Values, total: Values) -> Values:
    return _divide(cumulative, total[:, None])


def _divide(part: Values, whole: Values) -> Values:
    """part ÷ whole; NaN where the whole is 0."""
    part, whole = np.broadcast_arrays(part, whole)
    ratio: Values = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return ratio
