"""Agreement of readers: kappa and concordance, with intervals by patient.

Answers about slides of one patient are correlated, so patients are drawn with replacement, with all their slides
(`pipeline.evaluation.statistics.bootstrap`). If each patient has one slide, a share's interval is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.bootstrap import Resamples, estimate
from pipeline.evaluation.statistics.proportions import exact_interval, share
from training.foundation.errors import EmptyTableError

Answers = NDArray[np.int64]
Values = NDArray[np.float64]
Patients = Sequence[str] | NDArray[np.str_] | None
"""The patient of each case; None: each case is a separate patient."""
Weights = Literal["linear", "quadratic"]
"""Cost of a disagreement between two grades: their distance, or its square."""
MISSING = -1
"""Value for an answer that was not given."""


@dataclass(frozen=True)
class Agreement:
    """A measure of agreement; None if undefined, as kappa is when all answers are the same.

    The limits are also None if resamples are uninformative: with fewer than five patients, or when all agree.
    """

    value: float | None
    low: float | None
    high: float | None
    cases: int
    """Answers that were compared, usually slides."""
    patients: int = 0


def cohens_kappa(
    one: Answers,
    other: Answers,
    *,
    patients: Patients = None,
    weights: Weights | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Cohen's kappa of two readers, or of one reader's two sessions, on the cases that both answered.

    Args:
        one, other: answers (cases,), from 0; -1 for none.
        weights: for grades, whose distance is that of their numbers.

    Raises:
        EmptyTableError: no case was answered by both.
    """
    return mean_kappa(
        np.stack([one, other], axis=1), patients=patients, weights=weights, resamples=resamples, seed=seed
    )


def mean_kappa(
    answers_cr: Answers,
    *,
    patients: Patients = None,
    weights: Weights | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Mean of Cohen's kappa over all pairs of readers (Light, Psychological Bulletin 76, 1971), on the cases that all
    answered.

    Args:
        answers_cr: (cases, readers), from 0; -1 for none.
        weights: for grades, whose distance is that of their numbers.

    Raises:
        EmptyTableError: fewer than two readers, or no case that all answered.
    """
    complete, own = _complete(answers_cr, patients)
    size = max(int(complete.max()), 1) + 1  # all grades up to the highest, used or not

    def kappa(kinds: Answers, counts_rk: Values) -> Values:
        pairs = []
        for one, other in combinations(range(kinds.shape[1]), 2):
            tables = np.zeros((len(counts_rk), size * size))
            np.add.at(tables.T, kinds[:, one] * size + kinds[:, other], counts_rk.T)
            pairs.append(kappa_of_tables(tables.reshape(-1, size, size), weights))
        return np.asarray(np.mean(pairs, axis=0), np.float64)

    return _with_interval(complete, own, kappa, resamples, seed)


def kappa_of_tables(tables: Values, weights: Weights | None) -> Values:
    """Cohen's kappa (Psychological Bulletin 70, 1968) of tables of counts, (resamples, k, k); NaN where undefined."""
    grades = np.arange(tables.shape[-1])
    apart = np.abs(np.subtract.outer(grades, grades)).astype(np.float64)
    cost = {None: (apart > 0).astype(np.float64), "linear": apart, "quadratic": apart**2}[weights]
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = tables.sum(2)[:, :, None] * tables.sum(1)[:, None] / tables.sum((1, 2))[:, None, None]
        chance = (cost * expected).sum((1, 2))
        ratio = np.divide((cost * tables).sum((1, 2)), chance, out=np.full(len(tables), np.nan), where=chance > 0)
    return np.asarray(1 - ratio, np.float64)


def fleiss_kappa(answers_cr: Answers, *, patients: Patients = None, resamples: int = 2000, seed: int = 0) -> Agreement:
    """Kappa of any number of readers (Fleiss, Psychological Bulletin 76, 1971), on the cases that all answered.

    Args:
        answers_cr: (cases, readers), from 0; -1 for none.

    Raises:
        EmptyTableError: fewer than two readers, or no case that all answered.
    """
    complete, own = _complete(answers_cr, patients)
    num_answers = int(complete.max()) + 1
    counts = np.stack([(complete == answer).sum(1) for answer in range(num_answers)], axis=1)
    return _with_interval(counts, own, _fleiss, resamples, seed)


def _fleiss(kinds: Answers, counts_rk: Values) -> Values:
    """Args: kinds: (kinds of cases, answers), the number of readers who gave each."""
    readers, cases = int(kinds[0].sum()), counts_rk.sum(1)
    observed = counts_rk @ ((kinds**2).sum(1) - readers) / (cases * readers * (readers - 1))
    chance = (((counts_rk @ kinds) / (cases * readers)[:, None]) ** 2).sum(1)
    return np.asarray((observed - chance) / (1 - chance), np.float64)


def concordance(
    one: Answers, other: Answers, *, patients: Patients = None, resamples: int = 2000, seed: int = 0
) -> Agreement:
    """Share of cases with the same answer.

    Its interval is exact (Clopper and Pearson, Biometrika 26, 1934) if each patient has one case, and by bootstrap
    over patients if some have several, with no end better than that of full agreement, or of none, of as many patients.

    Raises:
        EmptyTableError: no case was answered in both.
    """
    complete, own = _complete(np.stack([one, other], axis=1), patients)
    same = complete[:, 0] == complete[:, 1]
    number = len(np.unique(own))
    if number == len(same):
        low, high = exact_interval(int(same.sum()), number)
        return Agreement(float(same.mean()), low, high, len(same), number)
    drawn = Resamples.draw(own, resamples=resamples, seed=seed)
    measured = share(same, np.ones(len(same), bool), drawn)
    return Agreement(measured.value, measured.low, measured.high, len(same), number)


def _complete(answers_cr: Answers, patients: Patients) -> tuple[Answers, NDArray[np.str_]]:
    """The cases that all answered, and the patient of each."""
    if answers_cr.shape[1] < 2:
        raise EmptyTableError("agreement needs at least two readers.")
    own = np.arange(len(answers_cr)).astype(str) if patients is None else np.asarray(patients, dtype=str)
    answered = (answers_cr != MISSING).all(1)
    if not answered.any():
        raise EmptyTableError("no case was answered by all readers compared.")
    return answers_cr[answered], own[answered]


def _with_interval(
    rows: Answers,
    patients: NDArray[np.str_],
    measure: Callable[[Answers, Values], Values],
    resamples: int,
    seed: int,
) -> Agreement:
    """Percentiles of the measure over patients drawn with replacement.

    Args:
        measure: function of the kinds of rows and their counts, (resamples, kinds); NaN where undefined.
    """
    kinds, kind_of = np.unique(rows, axis=0, return_inverse=True)
    drawn = Resamples.draw(patients, resamples=resamples, seed=seed)
    by_patient = np.zeros((drawn.num_patients, len(kinds)))
    np.add.at(by_patient, (drawn.patient_of, kind_of.reshape(-1)), 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(measure(kinds, by_patient.sum(0)[None])[0])
        resampled = measure(kinds, drawn.totals(by_patient))
    measured = estimate(value, resampled)
    return Agreement(measured.value, measured.low, measured.high, len(rows), drawn.num_patients)
