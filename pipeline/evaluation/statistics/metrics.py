"""Metrics of tile predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.foundation.words.class_order import positive_of_two

Probabilities = NDArray[np.float32]
"""float32 of shape (tiles, classes)."""


def decide(probabilities_nk: Probabilities, threshold: float, positive: int = 1) -> NDArray[np.int64]:
    """Class index per tile: with two classes, the positive one at or above `threshold`; otherwise the likeliest.

    Args:
        positive: index of the positive class, of two (`training.foundation.words.class_order.positive_of_two`).
    """
    if probabilities_nk.shape[1] == 2:
        reached = reaches(probabilities_nk[:, positive], threshold)
        return np.where(reached, positive, 1 - positive).astype(np.int64)
    return np.asarray(probabilities_nk.argmax(1), np.int64)


def reaches(scores: NDArray[np.floating], threshold: float) -> NDArray[np.bool_]:
    """Whether scores are at or above a threshold, compared in the precision they are stored in: a stored 0.7 reaches
    0.7, even if it has since been widened."""
    return np.asarray(np.asarray(scores, np.float32) >= np.float32(threshold), np.bool_)


def tile_metrics(
    labels: NDArray[np.int64], probabilities_nk: Probabilities, threshold: float, positive: int = 1
) -> dict[str, float | None]:
    """Number of tiles, accuracy, balanced accuracy and AUC.

    With two classes, AUC is that of the positive class; otherwise the mean of each class against the rest; None if a
    class does not occur. Balanced accuracy is the mean recall of the classes that occur.
    """
    predicted = decide(probabilities_nk, threshold, positive)
    return {
        "tiles": len(labels),
        "accuracy": float((predicted == labels).mean()),
        "balanced_accuracy": float(np.mean([(predicted[labels == k] == k).mean() for k in np.unique(labels)])),
        "auc": _auc(labels, probabilities_nk),
    }


def _auc(labels: NDArray[np.int64], probabilities_nk: Probabilities) -> float | None:
    from sklearn.metrics import roc_auc_score  # slow to import, and the app need not wait for it to start

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
    from sklearn.metrics import confusion_matrix  # slow to import, and the app need not wait for it to start

    predicted = decide(probabilities_nk, threshold, positive_of_two(classes) if len(classes) == 2 else 1)
    return np.asarray(confusion_matrix(labels, predicted, labels=range(len(classes))), np.int64)
