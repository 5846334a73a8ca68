"""One target in all units with a value: truth, and predictions of the model and of what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.survival.breslow import BaselineHazard
from pipeline.evaluation.statistics.survival.discrete import discrete_survival

Values = NDArray[np.float64]
THE_MODEL = "this model"


@dataclass(frozen=True)
class CoxCurves:
    """Survival of units by their risks and the baseline hazard of a model's training units."""

    hazard: BaselineHazard
    risks_n: Values

    @property
    def last_time(self) -> float:
        return self.hazard.last_time

    def at(self, times_t: Values) -> Values:
        """Probability of no event up to each time, (units, times). Raises ValueError: after `last_time`."""
        return self.hazard.survival(self.risks_n, times_t)


@dataclass(frozen=True)
class DiscreteCurves:
    """Survival of units by a model's hazards in intervals of time."""

    hazards_nb: Values
    bounds_b: tuple[float, ...]

    @property
    def last_time(self) -> float:
        return self.bounds_b[-1]

    def at(self, times_t: Values) -> Values:
        """Probability of no event up to each time, (units, times). Raises ValueError: after `last_time`."""
        return discrete_survival(self.hazards_nb, self.bounds_b, times_t)


Curves = CoxCurves | DiscreteCurves


@dataclass(frozen=True)
class Predictions:
    """What one method says of units."""

    values_nk: Values
    """Classes and grades: probabilities (units, classes), each a 32-bit number; a number or a risk: (units, 1)."""
    median_risk: float | None = None
    """Of training units, which splits others into two groups."""
    curves: tuple[Curves, ...] = ()
    """Of survival: those of each model's units in turn; empty if there are none."""

    def survival(self, times_t: Values) -> Values:
        """Probability of no event up to each time, (units, times). Raises ValueError: after `last_time`, or none."""
        if not self.curves:
            raise ValueError("there are no survival curves: no training unit is in the manifest.")
        return np.concatenate([curves.at(times_t) for curves in self.curves])

    @property
    def last_time(self) -> float:
        """Up to which all curves are known; 0 without curves."""
        return min((curves.last_time for curves in self.curves), default=0.0)


@dataclass(frozen=True)
class Material:
    """One target, in the tested units with a value."""

    target: Mapping[str, Any]
    """As `SlideModel.targets`."""
    units: tuple[str, ...]
    models: tuple[str, ...]
    """Model that is tested on each unit."""
    patients: NDArray[np.str_]
    truth_nc: Values
    """Index of the class; the number; survival: time and event."""
    trained_nc: Values
    """The same of the units that trained or chose the model."""
    by_method: Mapping[str, Predictions | str]
    """The model first; a text says why a method is not available."""

    @property
    def kind(self) -> str:
        """class, ordinal, number or survival."""
        return "survival" if self.target["kind"] in ("cox", "discrete") else str(self.target["kind"])

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.target["classes"])

    @property
    def model(self) -> Predictions:
        predictions = self.by_method[THE_MODEL]
        assert isinstance(predictions, Predictions)
        return predictions


def pooled(parts: Sequence[Material]) -> Material:
    """One target's units of all folds together.

    Risks of different models have no common zero: each model's median in training becomes 0.
    """
    if len(parts) == 1:
        return parts[0]
    methods = {name: [part.by_method[name] for part in parts] for name in parts[0].by_method}
    return Material(
        target=parts[0].target,
        units=tuple(unit for part in parts for unit in part.units),
        models=tuple(model for part in parts for model in part.models),
        patients=np.concatenate([part.patients for part in parts]),
        truth_nc=np.concatenate([part.truth_nc for part in parts]),
        trained_nc=np.concatenate([part.trained_nc for part in parts]),
        by_method={name: _pooled_predictions(of_folds) for name, of_folds in methods.items()},
    )


def _pooled_predictions(of_folds: Sequence[Predictions | str]) -> Predictions | str:
    for reason in of_folds:
        if isinstance(reason, str):
            return reason
    folds = [predictions for predictions in of_folds if isinstance(predictions, Predictions)]
    medians = [predictions.median_risk for predictions in folds]
    has_medians = all(median is not None for median in medians)
    values = [predictions.values_nk - (predictions.median_risk or 0.0) for predictions in folds]
    curves = tuple(curve for predictions in folds for curve in predictions.curves)
    has_curves = all(predictions.curves for predictions in folds)
    return Predictions(np.concatenate(values), 0.0 if has_medians else None, curves if has_curves else ())
