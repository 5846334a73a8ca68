"""All measures at one level: over tiles, slides or patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, Values, estimate
from pipeline.evaluation.statistics.metrics import Probabilities, confusion, decide
from pipeline.evaluation.statistics.one_class import AUROC, ClassResult, Cutoffs, auroc, auroc_resampled, class_result
from pipeline.evaluation.statistics.proportions import exact_area_where_none, exact_mean_where_none, exact_where_none
from training.foundation.words.class_order import positive_of_two


@dataclass(frozen=True)
class Level:
    """The measures over tiles, slides or patients."""

    name: str
    """tile, slide or patient."""
    items: int
    patients: int
    overall: dict[str, Estimate]
    """Measures over all classes; empty if an item can have several classes or none."""
    classes: tuple[ClassResult, ...]
    """With two classes, only the positive one; otherwise each against the rest."""
    confusion: NDArray[np.int64] | None
    """Counts, rows = label, columns = prediction; None if an item can have several classes or none."""


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
        overall: their `overall_measures`.
    """
    decided = decide(probabilities_nk, cutoffs.threshold, positive_class(class_names))
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
        positive = positive_class(class_names)
        called = decide(scores_nk, cutoffs.threshold, positive)
        truth = np.where(truth_nk[:, positive], positive, 1 - positive)
        matrix = np.array([[(called[truth == t] == c).sum() for c in (0, 1)] for t in (0, 1)])
    return Level(name, len(truth_nk), resamples.num_patients, {}, results, matrix)


def positive_class(class_names: Sequence[str]) -> int:
    """Index of the positive class of two; 1 for other numbers of classes, which have none."""
    return positive_of_two(class_names) if len(class_names) == 2 else 1


def reported_classes(class_names: Sequence[str]) -> range:
    """Indices of the classes compared with the rest: of two, only the positive one."""
    positive = positive_class(class_names)
    return range(positive, positive + 1) if len(class_names) == 2 else range(len(class_names))


def overall_measures(
    labels: NDArray[np.int64],
    probabilities_nk: Probabilities,
    resamples: Resamples,
    threshold: float,
    positive: int = 1,
) -> dict[str, Estimate]:
    """Accuracy, balanced accuracy and AUROC of tiles, over all classes, with intervals by patient.

    Args:
        positive: as for `decide`.
    """
    right = decide(probabilities_nk, threshold, positive) == labels
    by_class = np.stack([np.stack([right & (labels == k), labels == k], axis=1) for k in np.unique(labels)], axis=1)
    whole = by_class.sum(0)  # (classes, 2): right, all
    by_patient = resamples.sum_by_patient(by_class.astype(np.float64))  # (patients, classes, 2)
    totals = resamples.totals(by_patient)
    accuracy = estimate(float(right.mean()), totals[..., 0].sum(1) / totals[..., 1].sum(1))
    balanced = estimate(float((whole[:, 0] / whole[:, 1]).mean()), _mean_recall(totals))
    return {
        "accuracy": exact_where_none(accuracy, *by_patient.sum(1).T),
        "balanced accuracy": exact_mean_where_none(balanced, by_patient[..., 0], by_patient[..., 1]),
        AUROC: _mean_auroc(labels, probabilities_nk, resamples),
    }


def _mean_recall(totals_rk2: Values) -> Values:
    """Mean recall of the classes; NaN in resamples that lack a class of the data."""
    right, every = totals_rk2[..., 0], totals_rk2[..., 1]
    return np.asarray(np.divide(right, every, out=np.full(right.shape, np.nan), where=every > 0).mean(1), np.float64)


def _mean_auroc(labels: NDArray[np.int64], probabilities_nk: Probabilities, resamples: Resamples) -> Estimate:
    """AUROC of two classes, with the interval that each has; of more, the mean of each against the rest.

    None if a class does not occur.
    """
    if len(np.unique(labels)) < probabilities_nk.shape[1]:
        return Estimate(None)
    resampled = mean_auroc_resampled(labels, probabilities_nk, resamples)
    classes = _averaged(probabilities_nk)
    mean = estimate(float(np.mean([auroc(labels == k, probabilities_nk[:, k]) for k in classes])), resampled)
    return exact_area_where_none(mean, labels == 1, resamples.patient_of) if len(classes) == 1 else mean


def _averaged(probabilities_nk: Probabilities) -> range:
    """Classes whose AUROC is averaged; of two, both have the same AUROC."""
    return range(1, 2) if probabilities_nk.shape[1] == 2 else range(probabilities_nk.shape[1])


def mean_auroc_resampled(labels: NDArray[np.int64], probabilities_nk: Probabilities, resamples: Resamples) -> Values:
    """The mean AUROC in each resample, (resamples,)."""
    classes = _averaged(probabilities_nk)
    by_class = [auroc_resampled(labels == k, probabilities_nk[:, k], resamples) for k in classes]
    return np.asarray(np.mean(by_class, axis=0), np.float64)
