"""Logistic regression on standardised features: how well a linear model separates classes by them.

Its C is chosen on the training tiles alone: of powers of ten the smallest whose accuracy, in five-fold
cross-validation, is within one standard error of the best (Breiman et al., Classification and Regression Trees, 1984,
section 3.4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.metrics import Probabilities
from training.foundation.errors import EmptyTableError
from training.foundation.words.counts import counted

REGULARISATIONS = tuple(10.0**power for power in range(-6, 2))
PARTS = 5


@dataclass(frozen=True)
class Probe:
    """A fitted probe."""

    c: float
    num_tiles: int
    """Training tiles."""
    num_classes: int
    regression: Any

    def probabilities(self, values_nd: NDArray[np.float32]) -> Probabilities:
        """Probability of each class, (tiles, classes)."""
        probabilities_nk = np.zeros((len(values_nd), self.num_classes), np.float32)
        probabilities_nk[:, self.regression.classes_] = self.regression.predict_proba(values_nd)
        return probabilities_nk


def fit_probe(values_nd: NDArray[np.float32], labels: NDArray[np.int64], num_classes: int) -> Probe:
    """Choose C and fit a probe.

    Raises:
        EmptyTableError: fewer than two classes, or too few tiles of one for cross-validation.
    """
    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < PARTS:
        raise EmptyTableError(
            f"a probe needs training tiles of at least two classes, {PARTS} or more of each; there "
            f"{'is' if len(counts) == 1 else 'are'} {counted(len(counts), 'class', 'classes')} with "
            f"{', '.join(map(str, counts)) or 'none'}. Annotate more tissue of the training slides."
        )
    c = choose_c(values_nd, labels)
    return Probe(c, len(labels), num_classes, _regression(c).fit(values_nd, labels))


def choose_c(values_nd: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """The smallest C whose accuracy is within one standard error of the best."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score  # slow to import

    folds = StratifiedKFold(PARTS, shuffle=True, random_state=0)
    scores = np.array([cross_val_score(_regression(c), values_nd, labels, cv=folds) for c in REGULARISATIONS])
    best = int(scores.mean(1).argmax())
    enough = scores[best].mean() - scores[best].std() / np.sqrt(PARTS)
    return REGULARISATIONS[int(np.flatnonzero(scores.mean(1) >= enough)[0])]


def _regression(c: float) -> Any:
    from sklearn.linear_model import LogisticRegression  # slow to import
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, C=c))
