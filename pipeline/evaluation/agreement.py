"""How far readers agree: kappa and concordance, with intervals by bootstrap over cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from sklearn.metrics import cohen_kappa_score

from pipeline.errors import EmptyTableError
from pipeline.evaluation.bootstrap import CONFIDENCE

Answers = NDArray[np.int64]
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
    labels = np.arange(max(int(pairs.max()), 1) + 1)  # all grades, also those nobody gave: weights go by distance

    def kappa(chosen: Answers) -> float:
        if (chosen == chosen[0, 0]).all():  # scikit-learn would warn of what is told here by None
            return float("nan")
        return float(cohen_kappa_score(chosen[:, 0], chosen[:, 1], labels=labels, weights=weights))

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


def _fleiss(counts: Answers) -> float:
    """Args: counts: (cases, answers), how many readers gave each."""
    readers = int(counts[0].sum())
    observed = float(((counts**2).sum(1) - readers).mean() / (readers * (readers - 1)))
    chance = float(((counts.sum(0) / counts.sum()) ** 2).sum())
    return (observed - chance) / (1 - chance) if chance < 1 else float("nan")


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


def _with_interval(rows: Answers, measure: Callable[[Answers], float], resamples: int, seed: int) -> Agreement:
    """Percentiles of the measure over cases drawn with replacement; those on which it is not defined do not count."""
    with np.errstate(invalid="ignore", divide="ignore"):
        value = measure(rows)
        random = np.random.default_rng(seed)
        drawn: Sequence[float] = [measure(rows[random.integers(0, len(rows), len(rows))]) for _ in range(resamples)]
    defined = np.array([each for each in drawn if np.isfinite(each)])
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(defined, [tail, 100 - tail]).tolist() if len(defined) else (None, None)
    return Agreement(value if np.isfinite(value) else None, low, high, len(rows))
