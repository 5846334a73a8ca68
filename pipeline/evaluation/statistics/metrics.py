"""Numbers that say how good tile predictions are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, roc_auc_score

Probabilities = NDArray[np.float32]
"""float32 of shape (tiles, classes)."""


def decide(probabilities_nk: Probabilities, threshold: float) -> NDArray[np.int64]:
    """Class index per tile: with two classes the second from `threshold` on, else the likeliest."""
    if probabilities_nk.shape[1] == 2:
        return (probabilities_nk[:, 1] >= threshold).astype(np.int64)
    return np.asarray(probabilities_nk.argmax(1), np.int64)


def tile_metrics(
    labels: NDArray[np.int64], probabilities_nk: Probabilities, threshold: float
) -> dict[str, float | None]:
    """Tiles, accuracy, balanced accuracy and AUC.

    AUC is that of the second class with two classes, else the mean of each class against the rest; None where a class
    does not occur. Balanced accuracy is the mean recall of the classes that occur.
    """
    predicted = decide(probabilities_nk, threshold)
    return {
        "tiles": len(labels),
        "accuracy": float((predicted == labels).mean()),
        "balanced_accuracy": float(np.mean([(predicted[labels == k] == k).mean() for k in np.unique(labels)])),
        "auc": _auc(labels, probabilities_nk),
    }


def _auc(labels: NDArray[np.int64], probabilities_nk: Probabilities) -> float | None:
    num_classes = probabilities_nk.shape[1]
    if len(np.unique(labels)) < num_classes:
        return None
    if num_classes == 2:
        return float(roc_auc_score(labels, probabilities_nk[:, 1]))
    return float(np.mean([roc_auc_score(labels == k, probabilities_nk[:, k]) for k in range(num_classes)]))


def confusion(
    labels: NDArray[np.int64], probabilities_nk: Probabilities, threshold: float, classes: Sequence[str]
) -> NDArray[np.int64]:
    """Counts, rows = label, columns = prediction."""
    predicted = decide(probabilities_nk, threshold)
    return np.asarray(confusion_matrix(labels, predicted, labels=range(len(classes))), np.int64)
