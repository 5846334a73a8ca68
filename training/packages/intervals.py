"""Uncertainty of a validation's figures: percentile bootstrap intervals, drawn by patient.

Tiles of one patient resemble each other, so whole patients are drawn with replacement, as often as there are patients
(Davison and Hinkley, Bootstrap Methods and their Application, 1997, sections 3.8 and 5.3.1). The area under the ROC
curve counts ties half (Hanley and McNeil, Radiology 143, 1982).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
DRAWS = 1000
FEWEST_GROUPS = 2
"""With one patient there is nothing to draw from."""
FEW_GROUPS = 20
"""With fewer patients percentile intervals are too narrow, which is stated wherever they appear."""
_LEAST_DEFINED = 0.9
"""Fraction of the draws in which a figure must be defined; otherwise its interval is omitted."""

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Intervals:
    """Intervals of the figures of one validation."""

    by: str
    """Unit that was drawn: "patient" or "slide"."""
    groups: int
    bounds: dict[str, tuple[float, float]]
    """Lower and upper bound by figure; figures that could not be drawn are omitted."""

    def as_json(self) -> dict[str, Any]:
        return {
            "level": LEVEL, "draws": DRAWS, "by": self.by, "groups": self.groups,
            **{name: list(bounds) for name, bounds in self.bounds.items()},
        }  # fmt: skip


def bootstrap_intervals(
    labels: NDArray[np.int64],
    probabilities_nk: NDArray[np.float32],
    groups: NDArray[np.str_],
    *,
    by: str,
    seed: int = 0,
) -> Intervals:
    """95 % intervals of accuracy, balanced accuracy and AUC, as `metrics.classification_metrics` defines them.

    Args:
        labels: class indices, (tiles,).
        probabilities_nk: (tiles, classes).
        groups: the patient or slide of each tile, (tiles,).
        by: kind of group.
        seed: the same seed draws the same patients.
    """
    names, indices = np.unique(groups, return_inverse=True)
    if len(names) < FEWEST_GROUPS:
        return Intervals(by, len(names), {})
    random = np.random.default_rng(seed)
    figures = _Figures(labels, probabilities_nk)
    drawn: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        times = np.bincount(random.integers(len(names), size=len(names)), minlength=len(names))
        for name, value in figures.weighted(times[indices].astype(np.float64)).items():
            drawn.setdefault(name, []).append(value)
    kept = {name: values for name, values in drawn.items() if len(values) >= _LEAST_DEFINED * DRAWS}
    return Intervals(by, len(names), {name: _bounds(values) for name, values in kept.items()})


def _bounds(values: list[float]) -> tuple[float, float]:
    low, high = np.quantile(values, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return round(float(low), 4), round(float(high), 4)


class _Figures:
    """Figures of tiles that count several times, or not at all."""

    def __init__(self, labels: NDArray[np.int64], probabilities_nk: NDArray[np.float32]) -> None:
        self._labels = labels
        self._correct = probabilities_nk.argmax(1) == labels
        num_classes = probabilities_nk.shape[1]
        self._present = np.unique(labels)
        self._areas = (
            [Area(labels == k, probabilities_nk[:, k]) for k in range(num_classes)]
            if len(self._present) == num_classes
            else []
        )

    def weighted(self, weights: Weights) -> dict[str, float]:
        """Figures that are defined for these weights."""
        figures = {"accuracy": float(weights @ self._correct / weights.sum())}
        totals = np.bincount(self._labels, weights)[self._present]
        if (totals > 0).all():
            correct = np.bincount(self._labels, weights * self._correct)[self._present]
            figures["balanced_accuracy"] = float((correct / totals).mean())
            if self._areas:
                figures["auc"] = float(np.mean([area.weighted(weights) for area in self._areas]))
        return figures


class Area:
    """Area under the ROC curve of one class against the rest; scores are sorted once for all draws."""

    def __init__(self, positive: NDArray[np.bool_], scores: NDArray[np.float32]) -> None:
        self._order = np.argsort(scores, kind="stable")
        self._positive = positive[self._order]
        ranked = scores[self._order]
        self._starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])  # of tiles with the same score

    def weighted(self, weights: Weights) -> float:
        ordered = weights[self._order]
        positives = np.add.reduceat(ordered * self._positive, self._starts)
        negatives = np.add.reduceat(ordered * ~self._positive, self._starts)
        below = np.cumsum(negatives) - negatives
        return float(positives @ (below + negatives / 2) / (positives.sum() * negatives.sum()))
