"""How far readers agree: kappa and concordance, with intervals by bootstrap over cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from pipeline.errors import EmptyTableError
from pipeline.evaluation.bootstrap import CONFIDENCE

Answers = NDArray[np.int64]
Values = NDArray[np.float64]
MISSING = -1
"""In place of an answer that was not given."""


@dataclass(frozen=True)
class Agreement:
    """A measure of agreement; None where it is not defined, as kappa is not where all answers are the same."""

    value: float | None
    low: float | None
    high: float | None
    cases: int


def cohens_kappa(
    one: Answers, other: Answers, *, weights: str | None = None, resamples: int = 2000, seed: int = 0
) -> Agreement:
    """Of two readers, or of two sessions of one, on the cases that both answered.

    Args:
        one, other: answers (cases,), from 0; -1 where there is none.
        weights: "linear" or "quadratic" for grades.

    Raises:
        EmptyTableError: no case was answered by both.
    """
    both = (one != MISSING) & (other != MISSING)
    pairs = np.stack([one[both], other[both]], axis=1)
    _check_any(pairs)
    size = max(int(pairs.max()), 1) + 1  # all grades, also those nobody gave: weights go by distance
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size))).astype(np.float64)
    cost = {None: (apart > 0).astype(np.float64), "linear": apart, "quadratic": apart**2}[weights]

    def kappa(kinds: Answers, counts_rk: Values) -> Values:
        joint = np.zeros((len(counts_rk), size, size))
        joint[:, kinds[:, 0], kinds[:, 1]] = counts_rk
        expected = joint.sum(2)[:, :, None] * joint.sum(1)[:, None] / joint.sum((1, 2))[:, None, None]
        return np.asarray(1 - (cost * joint).sum((1, 2)) / (cost * expected).sum((1, 2)), np.float64)

    return _with_interval(pairs, kappa, resamples, seed)


def fleiss_kappa(answers_cr: Answers, *, resamples: int = 2000, seed: int = 0) -> Agreement:
    """Of any number of readers (Fleiss, Psychological Bulletin 76, 1971), on the cases that all answered.

    Args:
        answers_cr: (cases, readers), from 0; -1 where there is none.

    Raises:
        EmptyTableError: fewer than two readers, or no case that all answered.
    """
    complete = answers_cr[(answers_cr != MISSING).all(1)]
    _check_any(complete)
    if complete.shape[1] < 2:
        raise EmptyTableError("agreement needs at least two readers.")
    num_answers = int(complete.max()) + 1
    counts = np.stack([(complete == answer).sum(1) for answer in range(num_answers)], axis=1)
    return _with_interval(counts, _fleiss, resamples, seed)


def _fleiss(kinds: Answers, counts_rk: Values) -> Values:
    """Args: kinds: (kinds of cases, answers), how many readers gave each."""
    readers, cases = int(kinds[0].sum()), counts_rk.sum(1)
    observed = counts_rk @ ((kinds**2).sum(1) - readers) / (cases * readers * (readers - 1))
    chance = (((counts_rk @ kinds) / (cases * readers)[:, None]) ** 2).sum(1)
    return np.asarray((observed - chance) / (1 - chance), np.float64)


def concordance(one: Answers, other: Answers) -> Agreement:
    """Share of cases with the same answer, with the exact interval (Clopper and Pearson, Biometrika 26, 1934).

    Raises:
        EmptyTableError: no case was answered in both.
    """
    both = (one != MISSING) & (other != MISSING)
    _check_any(one[both])
    cases, same = int(both.sum()), int((one[both] == other[both]).sum())
    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, same, cases - same + 1)) if same else 0.0
    high = float(beta.ppf(1 - tail, same + 1, cases - same)) if same < cases else 1.0
    return Agreement(same / cases, low, high, cases)


def _check_any(values: Answers) -> None:
    if not len(values):
        raise EmptyTableError("no case was answered by all who are compared.")


def _with_interval(rows: Answers, measure: Callable[[Answers, Values], Values], resamples: int, seed: int) -> Agreement:
    """Percentiles of the measure over cases drawn with replacement; those on which it is not defined do not count.

    Args:
        measure: of the kinds of rows that occur, and how often each does, (resamples, kinds); NaN where not defined.
    """
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(rows), counts / len(rows), size=resamples)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(measure(kinds, counts[None].astype(np.float64))[0])
        resampled = measure(kinds, drawn.astype(np.float64))
    defined = resampled[np.isfinite(resampled)]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(defined, [tail, 100 - tail]).tolist() if len(defined) else (None, None)
    return Agreement(value if np.isfinite(value) else None, low, high, len(rows))
