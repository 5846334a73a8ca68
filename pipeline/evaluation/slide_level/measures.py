"""Measures of one method on one target, by the target's kind, with intervals by patient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.against import one_hot
from pipeline.evaluation.slide_level.material import Material, Predictions
from pipeline.evaluation.slide_level.survival_measures import (
    BRIER,
    HARRELL,
    UNO,
    FollowUp,
    resampled_by_unit,
    survival_measures,
)
from pipeline.evaluation.statistics.agreement import kappa_of_tables
from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, Values, estimate
from pipeline.evaluation.statistics.delong import DeLongAuc, DeLongTest, delong_test
from pipeline.evaluation.statistics.level import (
    mean_auroc_resampled,
    overall_measures,
    positive_class,
    reported_classes,
)
from pipeline.evaluation.statistics.metrics import decide
from pipeline.evaluation.statistics.one_class import AUPRC, AUROC, ClassResult, Cutoffs, class_result
from pipeline.evaluation.statistics.ordered import mean_absolute_error, r_squared
from pipeline.evaluation.statistics.proportions import share
from pipeline.settings.config import EvaluateConfig

KAPPA, ACCURACY, BALANCED = "quadratic kappa", "accuracy", "balanced accuracy"
R2, MAE, SLOPE = "R²", "mean absolute error", "calibration slope"
MAIN = {"class": AUROC, "ordinal": KAPPA, "number": R2, "survival": HARRELL}
"""The measure in which methods are compared, by kind."""
NAMES = {
    "ordinal": (KAPPA, ACCURACY),
    "number": (R2, MAE, SLOPE),
    "survival": (HARRELL, UNO, BRIER),
}
"""Measures by kind, in the order of tables; those of classes depend on their number."""


@dataclass(frozen=True)
class Measured:
    """Measures of one method."""

    measures: Mapping[str, Estimate]
    main_resampled: Values
    """The main measure in each resample, (resamples,); NaN where it is not defined."""
    by_class: tuple[ClassResult, ...] = ()
    """With curves and calibration; of two classes the positive one."""

    @property
    def delong(self) -> DeLongAuc | None:
        """Of two classes."""
        return self.by_class[0].delong if len(self.by_class) == 1 else None


def measure(material: Material, predictions: Predictions, resamples: Resamples, config: EvaluateConfig) -> Measured:
    """All measures of a method's predictions.

    Args:
        resamples: of the material's patients.
    """
    if material.kind == "class":
        return _classes(material, predictions.values_nk, resamples, config)
    if material.kind == "ordinal":
        return _grades(material, predictions.values_nk, resamples)
    if material.kind == "number":
        return _numbers(material.truth_nc[:, 0], predictions.values_nk[:, 0], resamples)
    return _survival(material, predictions, resamples)


def labels_of(material: Material) -> NDArray[np.int64]:
    """Index of each unit's class."""
    return material.truth_nc[:, 0].astype(np.int64)


def called(material: Material, values_nk: Values, threshold: float) -> NDArray[np.int64]:
    """Index of the class that each unit is called: of two, the positive one from the threshold on; the likeliest of
    more, and of grades."""
    if material.kind == "ordinal":
        return np.asarray(values_nk.argmax(1), np.int64)
    return decide(values_nk.astype(np.float32), threshold, positive_class(material.classes))


def paired_delong(material: Material, one_nk: Values, other_nk: Values) -> DeLongTest | None:
    """DeLong's test of two methods; None unless there are two classes and each unit is one patient."""
    if material.kind != "class" or len(material.classes) != 2 or not _one_unit_each(material):
        return None
    positive = positive_class(material.classes)
    return delong_test(labels_of(material) == positive, one_nk[:, positive], other_nk[:, positive])


def _one_unit_each(material: Material) -> bool:
    return len(np.unique(material.patients)) == len(material.patients)


def _classes(material: Material, values_nk: Values, resamples: Resamples, config: EvaluateConfig) -> Measured:
    labels, probabilities = labels_of(material), values_nk.astype(np.float32)
    positive = positive_class(material.classes)
    decided = decide(probabilities, config.threshold, positive)
    truth_nk = one_hot(labels, len(material.classes))
    by_class = tuple(
        class_result(
            material.classes[k],
            truth_nk[:, k],
            values_nk[:, k],
            resamples,
            Cutoffs(config.threshold, config.specificities, config.calibration_bins),
            decided=decided == k,
            are_independent=_one_unit_each(material),
        )
        for k in reported_classes(material.classes)
    )
    overall = overall_measures(labels, probabilities, resamples, config.threshold, positive)
    measures = {AUROC: overall[AUROC]}
    for result in by_class:
        of = "" if len(by_class) == 1 else f" of {result.class_name}"
        measures |= {f"{name}{of}": result.measures[name] for name in (AUROC, AUPRC) if of or name != AUROC}
    measures |= {BALANCED: overall[BALANCED], ACCURACY: overall[ACCURACY]}
    for result in by_class:
        of = "" if len(by_class) == 1 else f" of {result.class_name}"
        measures |= {f"{name}{of}": result.measures[name] for name in ("ECE", "Brier score")}
    return Measured(measures, mean_auroc_resampled(labels, probabilities, resamples), by_class)


def _grades(material: Material, values_nk: Values, resamples: Resamples) -> Measured:
    labels, number = labels_of(material), len(material.classes)
    grades = called(material, values_nk, 0.5)
    cells = np.zeros((len(labels), number * number))
    cells[np.arange(len(labels)), labels * number + grades] = 1
    by_patient = resamples.sum_by_patient(cells)
    tables = resamples.totals(by_patient).reshape(-1, number, number)
    kappa = float(kappa_of_tables(by_patient.sum(0).reshape(1, number, number), "quadratic")[0])
    resampled = kappa_of_tables(tables, "quadratic")
    accuracy = share(grades == labels, np.ones(len(labels), bool), resamples)
    return Measured({KAPPA: estimate(kappa, resampled), ACCURACY: accuracy}, resampled)


def _numbers(truth_n: Values, predicted_n: Values, resamples: Resamples) -> Measured:
    # Shifted by the mean, so that differences of squares keep their digits.
    truth, predicted = truth_n - truth_n.mean(), predicted_n - truth_n.mean()
    errors = truth - predicted
    columns = [np.ones(len(truth)), truth, predicted, truth**2, predicted**2, truth * predicted, errors**2]
    by_patient = resamples.sum_by_patient(np.stack([*columns, np.abs(errors)], axis=1))
    totals = resamples.totals(by_patient)
    r2, slope = _r2(totals), _slope(totals)
    whole_slope = float(_slope(by_patient.sum(0)[None])[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        mae = totals[:, 7] / totals[:, 0]
    measures = {
        R2: estimate(r_squared(truth_n, predicted_n), r2),
        MAE: estimate(mean_absolute_error(truth_n, predicted_n), mae),
        SLOPE: estimate(whole_slope, slope),
    }
    return Measured(measures, r2)


_SAME = 1e-12


def _r2(sums_r8: Values) -> Values:
    number, sum_t, squares_t, squares_e = (sums_r8[:, column] for column in (0, 1, 3, 6))
    variance = squares_t - sum_t**2 / number
    known = variance > _SAME * squares_t
    ratio = np.divide(squares_e, variance, out=np.full(len(number), np.nan), where=known)
    return np.asarray(1 - ratio, np.float64)


def _slope(sums_r8: Values) -> Values:
    """Slope of the true values on the predicted ones: 1 if predictions are neither too extreme nor too alike."""
    number, sum_t, sum_p, squares_p, products = (sums_r8[:, column] for column in (0, 1, 2, 4, 5))
    variance = squares_p - sum_p**2 / number
    known = variance > _SAME * squares_p
    covariance = products - sum_t * sum_p / number
    return np.asarray(np.divide(covariance, variance, out=np.full(len(number), np.nan), where=known), np.float64)


def _survival(material: Material, predictions: Predictions, resamples: Resamples) -> Measured:
    follow_up = FollowUp.of(material)
    everything = np.arange(len(material.units))
    measures: dict[str, Estimate] = {}
    main = np.full(len(resamples.counts_rp), np.nan)
    for name, function in survival_measures(follow_up, predictions).items():
        resampled = resampled_by_unit(function, resamples)
        measures[name] = estimate(function(everything), resampled)
        main = resampled if name == HARRELL else main
    missing = {name: Estimate(None) for name in NAMES["survival"] if name not in measures}
    return Measured({**measures, **missing}, main)
