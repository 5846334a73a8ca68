"""Measures of one class against the rest: curves and their areas, calibration, net benefit; with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, Values, band, estimate
from pipeline.evaluation.statistics.calibration import Calibration, calibration_of
from pipeline.evaluation.statistics.decision_curve import DecisionCurve, decision_curve
from pipeline.evaluation.statistics.delong import DeLongAuc, delong_auc
from pipeline.evaluation.statistics.metrics import reaches
from pipeline.evaluation.statistics.proportions import exact_area_where_none, share
from pipeline.evaluation.statistics.ranking import Counts, Ranking
from pipeline.evaluation.statistics.resampled_roc import ResampledRoc

GRID: Values = np.linspace(0, 1, 101)
"""Positions at which the bands of curves are computed: false positive rates, or recalls."""
MAX_POINTS = 400
"""Limit for a curve as drawn."""
AUROC, AUPRC = "AUROC", "AUPRC"


@dataclass(frozen=True)
class Curve:
    """A curve as drawn, and its pointwise 95 % band on a grid of its x axis (NaN: none)."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    grid: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class NamedCurve:
    """A class's curve and the area under it; None if there is none."""

    class_name: str
    area: float | None
    curve: Curve | None


@dataclass(frozen=True)
class ClassResult:
    """One class against the rest, over tiles, slides or patients."""

    class_name: str
    positives: int
    negatives: int
    patients: int
    measures: dict[str, Estimate]
    roc: Curve | None
    """None, like the other curves, if there are no positives or no negatives."""
    precision_recall: Curve | None
    calibration: Calibration | None
    decision: DecisionCurve | None
    delong: DeLongAuc | None
    """The AUROC by DeLong's method; None for tiles, which are not independent cases."""


@dataclass(frozen=True)
class Cutoffs:
    """Cutoffs at which a score becomes a decision."""

    threshold: float
    specificities: tuple[float, ...]
    bins: int


def class_result(
    class_name: str,
    truth: NDArray[np.bool_],
    scores: NDArray[np.floating],
    resamples: Resamples,
    cutoffs: Cutoffs,
    *,
    decided: NDArray[np.bool_] | None = None,
    are_independent: bool = False,
) -> ClassResult:
    """All results for one class.

    Args:
        truth: bool (items,). scores: (items,), probabilities. decided: whether each item is called this class; None: at
            or above the threshold. are_independent: whether DeLong's method applies: to slides or patients, not tiles.
    """
    scores = np.asarray(scores, np.float64)
    called = reaches(scores, cutoffs.threshold) if decided is None else decided
    ranking, rocs = Ranking(truth, scores, resamples), ResampledRoc(truth, scores, resamples)
    both = bool(truth.any() and not truth.all())
    resampled = _resampled(ranking, cutoffs.specificities) if both else {}
    measures = {
        AUROC: exact_area_where_none(estimate(auroc(truth, scores), rocs.aucs()), truth, resamples.patient_of),
        AUPRC: estimate(float(average_precision_score(truth, scores)) if both else None, resampled.get(AUPRC, _NONE)),
        "prevalence": share(truth, np.ones(len(truth), bool), resamples),
        "sensitivity": share(called, truth, resamples),
        "specificity": share(~called, ~truth, resamples),
        "positive predictive value": share(truth, called, resamples),
        "negative predictive value": share(~truth, ~called, resamples),
    }
    whole = ranking.counts()
    for specificity in cutoffs.specificities:
        name = sensitivity_name(specificity)
        measures[name] = estimate(_single(whole.sensitivity_at(specificity)), resampled.get(name, _NONE))
    calibrated = calibration_of(truth, scores, resamples, bins=cutoffs.bins) if len(truth) else None
    if calibrated:
        measures |= {"ECE": calibrated.ece, "Brier score": calibrated.brier}
    return ClassResult(
        class_name=class_name,
        positives=int(truth.sum()),
        negatives=int((~truth).sum()),
        patients=resamples.num_patients,
        measures=measures,
        roc=_roc(whole, rocs) if both else None,
        precision_recall=_precision_recall(whole, resampled) if both else None,
        calibration=calibrated,
        decision=decision_curve(ranking) if both else None,
        delong=delong_auc(truth, scores) if are_independent else None,
    )


_NONE: Values = np.zeros(0)


def sensitivity_name(specificity: float) -> str:
    """Name of the measure in tables."""
    return f"sensitivity at {specificity * 100:g} % specificity"


def auroc(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> float | None:
    """Area under the ROC curve; None if there are no positives or no negatives."""
    return float(roc_auc_score(truth, scores)) if truth.any() and not truth.all() else None


def auroc_resampled(truth: NDArray[np.bool_], scores: NDArray[np.floating], resamples: Resamples) -> Values:
    """The AUC in each resample, (resamples,)."""
    return ResampledRoc(truth, scores, resamples).aucs()


def roc_with_band(truth: NDArray[np.bool_], scores: NDArray[np.floating], resamples: Resamples) -> Curve | None:
    """The ROC curve with its band; None if there are no positives or no negatives."""
    if truth.all() or not truth.any():
        return None
    return _roc(Ranking(truth, scores, resamples).counts(), ResampledRoc(truth, scores, resamples))


def _resampled(ranking: Ranking, specificities: Sequence[float]) -> dict[str, Values]:
    """All other measures that need the order of scores, in one pass over the resamples."""
    measures: dict[str, Callable[[Counts], Values]] = {
        AUPRC: Counts.average_precision,
        "precision": lambda counts: counts.precision_on(GRID),
        **{sensitivity_name(s): lambda counts, s=s: counts.sensitivity_at(s) for s in specificities},  # type: ignore[misc]
    }
    values: dict[str, list[Values]] = {name: [] for name in measures}
    for piece in ranking.pieces():
        counts = ranking.counts(piece)
        for name, measure in measures.items():
            values[name].append(measure(counts))
    return {name: np.concatenate(parts) for name, parts in values.items() if parts}


def _single(values: Values) -> float | None:
    value = float(values[0])
    return value if np.isfinite(value) else None


def _roc(whole: Counts, rocs: ResampledRoc) -> Curve:
    fpr, tpr = whole.roc()
    low, high = band(rocs.tprs(GRID), len(GRID))
    return _curve(fpr[0], tpr[0], low, high)


def _precision_recall(whole: Counts, resampled: dict[str, Values]) -> Curve:
    recall, precision = whole.tp[0] / whole.positives[0], whole.tp[0] / (whole.tp[0] + whole.fp[0])
    recall, precision = np.r_[0.0, recall], np.r_[precision[0], precision]
    low, high = band(resampled.get("precision", np.zeros((0, len(GRID)))), len(GRID))
    return _curve(recall, precision, low, high)


def _curve(x: Values, y: Values, low: Values, high: Values) -> Curve:
    """A curve of at most `MAX_POINTS` points, including both ends."""
    chosen = np.unique(np.linspace(0, len(x) - 1, MAX_POINTS).round().astype(int))
    return Curve(*(tuple(line.tolist()) for line in (x[chosen], y[chosen], GRID, low, high)))
