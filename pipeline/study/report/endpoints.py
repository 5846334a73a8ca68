"""Endpoints of the protocol, with 95 % intervals by patient, and whether each hypothesis held.

Intervals are those of a bootstrap over patients. If all resamples agree (a share of 0 or 100 %, complete separation)
they are exact and count patients, and no other interval of such a measure has an end better than theirs; if there is
none at all, the result says why, and the verdict is "not determined".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.agreement import Weights, kappa_of_tables
from pipeline.evaluation.statistics.bootstrap import (
    FEWEST_PATIENTS,
    MIN_SHARE,
    Draws,
    Estimate,
    Resamples,
    Values,
    estimate,
)
from pipeline.evaluation.statistics.delong import DeLongAuc, delong_auc
from pipeline.evaluation.statistics.metrics import decide
from pipeline.evaluation.statistics.one_class import auroc, auroc_resampled
from pipeline.evaluation.statistics.proportions import exact_area_where_none, exact_mean_where_none, exact_where_none
from pipeline.study.protocol import Analysis, Endpoint
from pipeline.study.report.cases import Cases
from training.foundation.errors import BadRecipeError
from training.foundation.words.class_order import positive_of_two


@dataclass(frozen=True)
class EndpointResult:
    """Result of an endpoint, over all cases or those of a site or scanner."""

    endpoint: Endpoint
    class_name: str | None
    """The positive class, for measures that have one."""
    cases: int
    patients: int
    positives: int | None
    estimate: Estimate
    basis: str
    """Basis of the interval; without one, the reason why there is none."""
    delong: DeLongAuc | None
    """For an AUC over slides or patients."""

    @property
    def is_met(self) -> bool | None:
        """Whether the hypothesis held; None without a hypothesis or an interval."""
        if self.endpoint.at_least is None or self.estimate.low is None:
            return None
        return self.estimate.low >= self.endpoint.at_least

    @property
    def verdict(self) -> str:
        """Verdict for the table: yes, no, no hypothesis (–), or not determined by the data."""
        if self.endpoint.at_least is None:
            return "–"
        return {None: NOT_DETERMINED, True: "yes", False: "no"}[self.is_met]


NOT_DETERMINED = "not determined"


def result_of(endpoint: Endpoint, cases: Cases, analysis: Analysis, draws: Draws) -> EndpointResult:
    """Compute one endpoint over some cases.

    Raises:
        BadRecipeError: a class that the model does not have, or none is named although there are several.
    """
    resamples = draws.of(cases.patients)
    index = positive_index(endpoint, cases.class_names) if endpoint.measure in WITH_A_CLASS else None
    truth = cases.truth_nk[:, index] if index is not None else None
    delong = None
    if endpoint.measure == "auc":
        assert truth is not None
        scores = cases.scores_nk[:, index]
        measured = estimate(auroc(truth, scores), auroc_resampled(truth, scores, resamples))
        measured = exact_area_where_none(measured, truth, resamples.patient_of)
        delong = delong_auc(truth, scores) if endpoint.level != "tile" else None
    else:
        measured = _rate_of_confusion(endpoint, cases, resamples, analysis.threshold, index)
    return EndpointResult(
        endpoint=endpoint,
        class_name=None if index is None else cases.class_names[index],
        cases=len(cases),
        patients=resamples.num_patients,
        positives=None if truth is None else int(truth.sum()),
        estimate=measured,
        basis=_basis(endpoint.measure, measured, truth, cases, resamples),
        delong=delong,
    )


def _basis(
    measure: str, measured: Estimate, truth: NDArray[np.bool_] | None, cases: Cases, resamples: Resamples
) -> str:
    if measured.low is not None:
        return "exact, by patient" if measured.is_exact else "bootstrap, by patient"
    if not len(cases):
        return "none: no case has a reference"
    if measured.value is None:
        return "none: undefined, " + _why_undefined(measure, truth, cases)
    if resamples.num_patients < FEWEST_PATIENTS:
        return f"none: fewer than {FEWEST_PATIENTS} patients"
    if not len(resamples.counts_rp):
        return "none: the protocol requests no resamples"
    if measured.resamples < MIN_SHARE * len(resamples.counts_rp):
        return f"none: fewer than {MIN_SHARE:.0%} of the resamples have a value"
    return "none: the same in all resamples"


def _why_undefined(measure: str, truth: NDArray[np.bool_] | None, cases: Cases) -> str:
    if truth is not None:
        return "no case has the class" if not truth.any() else "every case has the class"
    classes = _true_classes(cases)
    if classes is None:
        return "a case has several classes"
    if measure == "balanced_accuracy":
        absent = [name for at, name in enumerate(cases.class_names) if at not in classes]
        return f"no case of {', '.join(absent)}"
    return "all cases have one class, and are called that"


WITH_A_CLASS = ("auc", "sensitivity", "specificity")


def positive_index(endpoint: Endpoint, class_names: tuple[str, ...]) -> int:
    """Index of the positive class. Raises BadRecipeError: the model does not have it, or none of several is named."""
    if endpoint.class_name is None and len(class_names) == 2:
        return positive_of_two(class_names)
    if endpoint.class_name not in class_names:
        raise BadRecipeError(
            f"endpoint {endpoint.name}: class_name {endpoint.class_name!r}: model {endpoint.model} has "
            f"{', '.join(class_names)}. Name one of them."
        )
    return class_names.index(endpoint.class_name)


def _rate_of_confusion(
    endpoint: Endpoint, cases: Cases, resamples: Resamples, threshold: float, index: int | None
) -> Estimate:
    """A measure that is a function of the confusion matrix."""
    truth, called = _truth_and_call(cases, threshold, index)
    if truth is None:
        return Estimate(None)
    k = 2 if index is not None else len(cases.class_names)
    if not len(truth):
        return Estimate(None)
    one_hot = np.zeros((len(truth), k * k))
    one_hot[np.arange(len(truth)), truth * k + called] = 1
    by_patient = resamples.sum_by_patient(one_hot)
    measure = _kappa(endpoint.weights) if endpoint.measure == "kappa" else MEASURES[endpoint.measure]
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = float(measure(one_hot.sum(0).reshape(1, k, k))[0])
        resampled = measure(resamples.totals(by_patient).reshape(-1, k, k))
    return _exact_where_none(endpoint.measure, estimate(whole, resampled), by_patient.reshape(-1, k, k))


def _exact_where_none(measure: str, measured: Estimate, counts_pkk: Values) -> Estimate:
    """Shares have an exact interval where the bootstrap has none, and none better than that; kappa is not a share."""
    if measure == "kappa":
        return measured
    right, every = np.diagonal(counts_pkk, axis1=1, axis2=2), counts_pkk.sum(2)  # (patients, classes)
    if measure == "balanced_accuracy":
        return exact_mean_where_none(measured, right, every)
    if measure == "accuracy":
        return exact_where_none(measured, right.sum(1), every.sum(1))
    column = 1 if measure == "sensitivity" else 0
    return exact_where_none(measured, right[:, column], every[:, column])


def _truth_and_call(
    cases: Cases, threshold: float, index: int | None
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """True and called class of each case; for one class against the rest, 1 is that class."""
    positive = positive_of_two(cases.class_names) if len(cases.class_names) == 2 else 1
    decided = decide(cases.scores_nk.astype(np.float32), threshold, positive) if len(cases) else np.zeros(0, np.int64)
    if index is not None:
        return cases.truth_nk[:, index].astype(np.int64), (decided == index).astype(np.int64)
    return _true_classes(cases), decided


def _true_classes(cases: Cases) -> NDArray[np.int64] | None:
    """True class of each case; None if a case has several of more than two, or none: the right one is not defined."""
    if len(cases.class_names) == 2:  # a patient with positive and negative slides is positive
        positive = positive_of_two(cases.class_names)
        return np.asarray(np.where(cases.truth_nk[:, positive], positive, 1 - positive), np.int64)
    if (cases.truth_nk.sum(1) != 1).any():
        return None
    return np.asarray(cases.truth_nk.argmax(1), np.int64)


def _accuracy(counts: Values) -> Values:
    return np.asarray(np.trace(counts, axis1=1, axis2=2) / counts.sum((1, 2)), np.float64)


def _balanced(counts: Values) -> Values:
    """NaN without cases of some class: the mean of the other recalls is another measure."""
    return np.asarray((np.diagonal(counts, axis1=1, axis2=2) / counts.sum(2)).mean(1), np.float64)


def _kappa(weights: Weights | None) -> Callable[[Values], Values]:
    """Cohen's kappa of tables (resamples, k, k); NaN where chance alone has no disagreement."""
    return lambda counts: kappa_of_tables(counts, weights)


def _sensitivity(counts: Values) -> Values:
    return np.asarray(counts[:, 1, 1] / counts[:, 1].sum(1), np.float64)


def _specificity(counts: Values) -> Values:
    return np.asarray(counts[:, 0, 0] / counts[:, 0].sum(1), np.float64)


MEASURES: Mapping[str, Callable[[Values], Values]] = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced,
    "sensitivity": _sensitivity,
    "specificity": _specificity,
}
"""From counts (resamples, truth, called) to (resamples,); kappa depends on its weights."""
