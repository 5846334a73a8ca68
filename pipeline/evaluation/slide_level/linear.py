"""Linear models of a few numbers per unit: what a slide-level model must beat.

Classes and grades by logistic regression, numbers by ridge regression, survival by Cox's model with a ridge penalty.
The strength of the penalty is the best of a grid in cross-validation on the training units, whose patients stay
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.slide_level.cox_ridge import cox_ridge
from pipeline.evaluation.statistics.survival.concordance import harrells_c

Values = NDArray[np.float64]
STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Of the penalty, beside sums over units of columns that have variance 1."""
FOLDS = 5
_LEAST = 1e-6
"""A probability of 0 costs as much as this one."""


@dataclass(frozen=True)
class Known:
    """Training units with their columns and targets."""

    x_nd: Values
    truth_nc: Values
    patients: Sequence[str]

    def part(self, rows: NDArray[np.bool_]) -> Known:
        """Some of the units."""
        patients = [patient for patient, row in zip(self.patients, rows, strict=True) if row]
        return Known(self.x_nd[rows], self.truth_nc[rows], patients)


@dataclass(frozen=True)
class Fitted:
    """Predictions of a linear model."""

    tested_nk: Values
    """Probabilities (units, classes); the number or the risk (units, 1)."""
    trained_nk: Values
    strength: float


def cannot_fit(kind: str, truth_nc: Values) -> str | None:
    """Why no model can be fitted to training units, as a clause; None if one can."""
    if len(truth_nc) < 2:
        return "fewer than two training units have a value"
    if kind == "survival":
        return None if truth_nc[:, 1].any() else "no training unit has an event"
    return None if len(np.unique(truth_nc[:, 0])) > 1 else "all training units have the same value"


def fit_linear(kind: str, known: Known, tested_nd: Values, num_classes: int) -> Fitted:
    """Fit a model to the training units and predict others.

    Args:
        kind: "class", "ordinal", "number" or "survival".
        tested_nd: (units, columns). num_classes: 0 for kinds without classes.
    """
    mean_d, std_d = known.x_nd.mean(0), known.x_nd.std(0)
    std_d = np.where(std_d > 0, std_d, 1.0)
    scaled, tested = (known.x_nd - mean_d) / std_d, (tested_nd - mean_d) / std_d
    if scaled.shape[1] > len(scaled):
        # The penalised optimum lies in the span of the units: as few columns as units give the same predictions.
        _, _, directions = np.linalg.svd(scaled, full_matrices=False)
        scaled, tested = scaled @ directions.T, tested @ directions.T
    prepared = Known(scaled, known.truth_nc, known.patients)
    strength = _best_strength(kind, prepared, num_classes)
    both = _predict(kind, prepared, np.concatenate([scaled, tested]), num_classes, strength)
    return Fitted(both[len(scaled) :], both[: len(scaled)], strength)


def _best_strength(kind: str, known: Known, num_classes: int) -> float:
    fold_n = assign_folds(kind, known)
    scores = {strength: _mean_score(kind, known, num_classes, (fold_n, strength)) for strength in STRENGTHS}
    valid = {strength: score for strength, score in scores.items() if score is not None}
    return max(valid, key=lambda strength: valid[strength]) if valid else STRENGTHS[len(STRENGTHS) // 2]


def _mean_score(kind: str, known: Known, num_classes: int, tried: tuple[NDArray[np.int64], float]) -> float | None:
    fold_n, strength = tried
    scores = []
    for fold in range(FOLDS):
        inside, outside = known.part(fold_n != fold), known.part(fold_n == fold)
        if len(outside.x_nd) and cannot_fit(kind, inside.truth_nc) is None:
            score = _score(kind, outside.truth_nc, _predict(kind, inside, outside.x_nd, num_classes, strength))
            scores += [] if score is None else [score]
    return float(np.mean(scores)) if scores else None


def assign_folds(kind: str, known: Known) -> NDArray[np.int64]:
    """Fold of each unit: patients in order of their targets, assigned in turn."""
    column = 1 if kind == "survival" else 0
    highest: dict[str, float] = {}
    for patient, value in zip(known.patients, known.truth_nc[:, column].tolist(), strict=True):
        highest[patient] = max(value, highest.get(patient, value))
    turn = sorted(highest, key=lambda patient: (highest[patient], patient))
    fold_of = {patient: index % FOLDS for index, patient in enumerate(turn)}
    return np.array([fold_of[patient] for patient in known.patients], np.int64)


def _predict(kind: str, known: Known, x_nd: Values, num_classes: int, strength: float) -> Values:
    from sklearn.linear_model import LogisticRegression, Ridge  # slow to import

    if kind == "survival":
        beta = cox_ridge(known.x_nd, known.truth_nc[:, 0], known.truth_nc[:, 1] == 1, strength)
        return np.asarray((x_nd @ beta)[:, None], np.float64)
    if kind == "number":
        regression = Ridge(alpha=strength).fit(known.x_nd, known.truth_nc[:, 0])
        return np.asarray(regression.predict(x_nd)[:, None], np.float64)
    labels = known.truth_nc[:, 0].astype(np.int64)
    classifier = LogisticRegression(C=1 / strength, max_iter=10_000).fit(known.x_nd, labels)
    probabilities_nk = np.zeros((len(x_nd), num_classes))
    probabilities_nk[:, classifier.classes_] = classifier.predict_proba(x_nd)
    return probabilities_nk


def _score(kind: str, truth_nc: Values, predicted_nk: Values) -> float | None:
    """How well predictions fit, higher is better: mean log probability, negative squared error, Harrell's C."""
    if kind == "survival":
        events = truth_nc[:, 1] == 1
        return harrells_c(truth_nc[:, 0], events, predicted_nk[:, 0]).value if events.any() else None
    if kind == "number":
        return -float(((truth_nc - predicted_nk) ** 2).mean())
    own = predicted_nk[np.arange(len(truth_nc)), truth_nc[:, 0].astype(np.int64)]
    return float(np.log(np.maximum(own, _LEAST)).mean())
