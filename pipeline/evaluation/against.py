"""Two models on the same tiles, slides and patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, estimate
from pipeline.evaluation.statistics.delong import DeLongTest, delong_test
from pipeline.evaluation.statistics.level import reported_classes
from pipeline.evaluation.statistics.one_class import auroc, auroc_resampled


@dataclass(frozen=True)
class Difference:
    """AUROC of the model minus that of another, for one class at one level."""

    level: str
    class_name: str
    first: float
    second: float
    bootstrap: Estimate
    """The difference, with its interval by patient: both models are compared in the same resamples."""
    delong: DeLongTest | None
    """For slides and patients; tiles are not independent cases."""


def auroc_differences(
    level: str,
    truth_nk: NDArray[np.bool_],
    first_nk: NDArray[np.floating],
    second_nk: NDArray[np.floating],
    resamples: Resamples,
    class_names: Sequence[str],
) -> list[Difference]:
    """Differences for every class that has both positives and negatives.

    Args:
        truth_nk: bool (items, classes). first_nk, second_nk: scores of the two models, (items, classes).
    """
    differences = []
    for k in reported_classes(class_names):
        truth, first, second = truth_nk[:, k], first_nk[:, k], second_nk[:, k]
        values = auroc(truth, first), auroc(truth, second)
        if values[0] is None or values[1] is None:
            continue
        resampled = auroc_resampled(truth, first, resamples) - auroc_resampled(truth, second, resamples)
        tested = None if level == "tile" else delong_test(truth, first, second)
        difference = estimate(values[0] - values[1], resampled)
        differences.append(Difference(level, class_names[k], values[0], values[1], difference, tested))
    return differences


def one_hot(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.bool_]:
    """bool (items, classes) of class indices."""
    return np.asarray(labels[:, None] == np.arange(num_classes)[None], bool)
