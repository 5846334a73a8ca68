"""Endpoints: what the protocol asked, with 95 % intervals by patient, and whether the hypothesis held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadRecipeError
from pipeline.evaluation.bootstrap import Draws, Estimate, Resamples, Values, estimate
from pipeline.evaluation.delong import DeLongAuc, delong_auc
from pipeline.evaluation.metrics import decide
from pipeline.evaluation.one_class import auroc, auroc_resampled
from pipeline.study.protocol import Analysis, Endpoint
from pipeline.study.report.cases import Cases


@dataclass(frozen=True)
class EndpointResult:
    """What came of an endpoint, over all cases or those of a site or scanner."""

    endpoint: Endpoint
    class_name: str | None
    """The positive class, of measures that have one."""
    cases: int
    patients: int
    positives: int | None
    estimate: Estimate
    delong: DeLongAuc | None
    """Of an AUC over slides or patients."""

    @property
    def is_met(self) -> bool | None:
        """Whether the hypothesis held; None without a hypothesis or an interval."""
        if self.endpoint.at_least is None or self.estimate.low is None:
            return None
        return self.estimate.low >= self.endpoint.at_least


def result_of(endpoint: Endpoint, cases: Cases, analysis: Analysis, draws: Draws) -> EndpointResult:
    """One endpoint over some cases.

    Raises:
        BadRecipeError: a class that the model does not have, or none is named where there are several.
    """
    resamples = draws.of(cases.patients)
    index = positive_index(endpoint, cases.class_names) if endpoint.measure in WITH_A_CLASS else None
    truth = cases.truth_nk[:, index] if index is not None else None
    delong = None
    if endpoint.measure == "auc":
        assert truth is not None
        scores = cases.scores_nk[:, index]
        measured = estimate(auroc(truth, scores), auroc_resampled(truth, scores, resamples))
        delong = delong_auc(truth, scores) if endpoint.level != "tile" else None
    else:
        measured = _of_confusion(endpoint, cases, resamples, analysis.threshold, index)
    return EndpointResult(
        endpoint=endpoint,
        class_name=None if index is None else cases.class_names[index],
        cases=len(cases),
        patients=resamples.num_patients,
        positives=None if truth is None else int(truth.sum()),
        estimate=measured,
        delong=delong,
    )


WITH_A_CLASS = ("auc", "sensitivity", "specificity")


def positive_index(endpoint: Endpoint, class_names: tuple[str, ...]) -> int:
    """Raises BadRecipeError: a class that the model does not have, or none is named where there are several."""
    if endpoint.class_name is None and len(class_names) == 2:
        return 1
    if endpoint.class_name not in class_names:
        raise BadRecipeError(
            f"endpoint {endpoint.name}: class_name {endpoint.class_name!r}: model {endpoint.model} has "
            f"{', '.join(class_names)}. Name one of them."
        )
    return class_names.index(endpoint.class_name)


def _of_confusion(
    endpoint: Endpoint, cases: Cases, resamples: Resamples, threshold: float, index: int | None
) -> Estimate:
    """A measure that is a function of how often each class was called each class."""
    truth, called = _truth_and_call(cases, threshold, index)
    if truth is None:
        return Estimate(None)
    k = 2 if index is not None else len(cases.class_names)
    one_hot = np.zeros((len(truth), k * k))
    one_hot[np.arange(len(truth)), truth * k + called] = 1
    by_patient = resamples.sum_by_patient(one_hot) if len(truth) else np.zeros((1, k * k))
    measure = MEASURES[endpoint.measure]
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = float(measure(one_hot.sum(0).reshape(1, k, k))[0])
        resampled = measure(resamples.totals(by_patient).reshape(-1, k, k)) if len(truth) else np.zeros(0)
    return estimate(whole, resampled)


def _truth_and_call(
    cases: Cases, threshold: float, index: int | None
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Class of each case and what it was called; of one class against the rest, 1 for that class."""
    decided = decide(cases.scores_nk.astype(np.float32), threshold) if len(cases) else np.zeros(0, np.int64)
    if index is not None:
        return cases.truth_nk[:, index].astype(np.int64), (decided == index).astype(np.int64)
    if len(cases.class_names) == 2:  # a patient with positive and negative slides is positive
        return cases.truth_nk[:, 1].astype(np.int64), decided
    if (cases.truth_nk.sum(1) != 1).any():  # patients with several classes: which one would be right is not defined
        return None, decided
    return cases.truth_nk.argmax(1).astype(np.int64), decided


def _accuracy(counts: Values) -> Values:
    return np.asarray(np.trace(counts, axis1=1, axis2=2) / counts.sum((1, 2)), np.float64)


def _balanced(counts: Values) -> Values:
    recalls = np.diagonal(counts, axis1=1, axis2=2) / counts.sum(2)
    occurring = counts.sum(2) > 0
    return np.asarray(np.where(occurring, recalls, 0).sum(1) / occurring.sum(1), np.float64)


def _kappa(counts: Values) -> Values:
    total = counts.sum((1, 2))
    chance = (counts.sum(1) * counts.sum(2)).sum(1) / total**2
    return np.asarray((_accuracy(counts) - chance) / (1 - chance), np.float64)


def _sensitivity(counts: Values) -> Values:
    return np.asarray(counts[:, 1, 1] / counts[:, 1].sum(1), np.float64)


def _specificity(counts: Values) -> Values:
    return np.asarray(counts[:, 0, 0] / counts[:, 0].sum(1), np.float64)


MEASURES: Mapping[str, Callable[[Values], Values]] = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced,
    "kappa": _kappa,
    "sensitivity": _sensitivity,
    "specificity": _specificity,
}
"""From counts (resamples, truth, called) to (resamples,)."""
