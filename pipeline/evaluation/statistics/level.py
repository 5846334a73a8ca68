"""All measures at one level: over tiles, slides or patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.bootstrap import Estimate, Resamples, Values, estimate
from pipeline.evaluation.metrics import Probabilities, confusion, decide
from pipeline.evaluation.one_class import AUROC, ClassResult, Cutoffs, auroc, auroc_resampled, class_result


@dataclass(frozen=True)
class Level:
    """The measures over tiles, slides or patients."""

    name: str
    """tile, slide or patient."""
    items: int
    patients: int
    overall: dict[str, Estimate]
    """Over all classes; empty where an item can have several classes or none."""
    classes: tuple[ClassResult, ...]
    """With two classes the second alone, else each against the rest."""
    confusion: NDArray[np.int64] | None
    """Counts, rows = label, columns = prediction; None where an item can have several classes or none."""


def tile_level(
    labels: NDArray[np.int64],
    probabilities_nk: Probabilities,
    overall: dict[str, Estimate],
    resamples: Resamples,
    cutoffs: Cutoffs,
    class_names: Sequence[str],
) -> Level:
    """Measures over tiles, each of which has one class.

    Args:
        overall: `overall_measures` of them.
    """
    decided = decide(probabilities_nk, cutoffs.threshold)
    results = tuple(
        class_result(class_names[k], labels == k, probabilities_nk[:, k], resamples, cutoffs, decided=decided == k)
        for k in reported_classes(class_names)
    )
    return Level(
        name="tile",
        items=len(labels),
        patients=resamples.num_patients,
        overall=overall,
        classes=results,
        confusion=confusion(labels, probabilities_nk, cutoffs.threshold, class_names),
    )


def case_level(
    name: str,
    truth_nk: NDArray[np.bool_],
    scores_nk: NDArray[np.floating],
    resamples: Resamples,
    cutoffs: Cutoffs,
    class_names: Sequence[str],
) -> Level:
    """Measures over slides or patients, which may have several classes.

    Args:
        truth_nk: bool (cases, classes). scores_nk: (cases, classes).
    """
    results = tuple(
        class_result(class_names[k], truth_nk[:, k], scores_nk[:, k], resamples, cutoffs, are_independent=True)
        for k in reported_classes(class_names)
    )
    matrix = None
    if len(class_names) == 2:
        called = scores_nk[:, 1] >= cutoffs.threshold
        matrix = np.array([[(called[truth_nk[:, 1] == t] == c).sum() for c in (False, True)] for t in (False, True)])
    return Level(name, len(truth_nk), resamples.num_patients, {}, results, matrix)


def reported_classes(class_names: Sequence[object]) -> range:
    """Indices of the classes that stand against the rest: of two the second says it all."""
    return range(1, 2) if len(class_names) == 2 else range(len(class_names))


def overall_measures(
    labels: NDArray[np.int64], probabilities_nk: Probabilities, resamples: Resamples, threshold: float
) -> dict[str, Estimate]:
    """Accuracy, balanced accuracy and AUROC of tiles, over all classes, with intervals by patient."""
    right = decide(probabilities_nk, threshold) == labels
    by_class = np.stack([np.stack([right & (labels == k), labels == k], axis=1) for k in np.unique(labels)], axis=1)
    whole = by_class.sum(0)  # (classes, 2): right, all
    totals = resamples.totals(resamples.sum_by_patient(by_class.astype(np.float64)))
    return {
        "accuracy": estimate(float(right.mean()), totals[..., 0].sum(1) / totals[..., 1].sum(1)),
        "balanced accuracy": estimate(float((whole[:, 0] / whole[:, 1]).mean()), _mean_recall(totals)),
        AUROC: _mean_auroc(labels, probabilities_nk, resamples),
    }


def _mean_recall(totals_rk2: Values) -> Values:
    """NaN in resamples that lack a class which the data have."""
    right, every = totals_rk2[..., 0], totals_rk2[..., 1]
    return np.asarray(np.divide(right, every, out=np.full(right.shape, np.nan), where=every > 0).mean(1), np.float64)


def _mean_auroc(labels: NDArray[np.int64], probabilities_nk: Probabilities, resamples: Resamples) -> Estimate:
    """Of the second of two classes; of more, the mean of each against the rest. None where a class does not occur."""
    if len(np.unique(labels)) < probabilities_nk.shape[1]:
        return Estimate(None)
    resampled = mean_auroc_resampled(labels, probabilities_nk, resamples)
    classes = reported_classes(range(probabilities_nk.shape[1]))
    return estimate(float(np.mean([auroc(labels == k, probabilities_nk[:, k]) for k in classes])), resampled)


def mean_auroc_resampled(labels: NDArray[np.int64], probabilities_nk: Probabilities, resamples: Resamples) -> Values:
    """The same in each resample, (resamples,)."""
    classes = reported_classes(range(probabilities_nk.shape[1]))
    each = [auroc_resampled(labels == k, probabilities_nk[:, k], resamples) for k in classes]
    return np.asarray(np.mean(each, axis=0), np.float64)
