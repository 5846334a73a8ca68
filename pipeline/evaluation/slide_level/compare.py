"""What a slide-level model is compared with: linear models of the mean feature, of clinical columns, and of the mean
feature of an untrained encoder, all fitted to the units that trained or chose the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.embedding import UNTRAINED as NAME_UNTRAINED
from pipeline.evaluation.slide_level.collect import Fold, UnitFacts, encoder_name
from pipeline.evaluation.slide_level.covariates import covariate_matrix
from pipeline.evaluation.slide_level.linear import Known, cannot_fit, fit_linear
from pipeline.evaluation.slide_level.material import (
    THE_MODEL,
    CoxCurves,
    Curves,
    DiscreteCurves,
    Material,
    Predictions,
    Values,
)
from pipeline.evaluation.statistics.survival.breslow import breslow
from pipeline.slide_level import TargetTable

MEAN_POOL = "linear model of the mean feature"
CLINICAL = "clinical columns alone"
UNTRAINED = "untrained encoder, mean feature"

Covariates = Mapping[str, Mapping[str, float | str]]


@dataclass(frozen=True)
class Side:
    """Units of one fold that have a value of one target: tested ones, or those trained on."""

    units: tuple[str, ...]
    patients: tuple[str, ...]
    truth_nc: Values


def material_of(
    fold: Fold, target: Mapping[str, Any], table: TargetTable, covariates: Covariates, *, baselines: bool
) -> Material | None:
    """One target of one model; None if no tested unit has a value."""
    tested, trained = _side(fold.tested, target, table, fold), _side(fold.trained, target, table, fold)
    if not tested.units:
        return None
    material = Material(
        target=target,
        units=tested.units,
        models=(fold.model.model_id,) * len(tested.units),
        patients=np.array(tested.patients, dtype=str),
        truth_nc=tested.truth_nc,
        trained_nc=trained.truth_nc,
        by_method={THE_MODEL: _of_model(fold, target, tested, trained)},
    )
    if not baselines:
        return material
    others = _baselines(fold, material, (tested, trained), covariates)
    return replace(material, by_method={**material.by_method, **others})


def _side(facts: Mapping[str, UnitFacts], target: Mapping[str, Any], table: TargetTable, fold: Fold) -> Side:
    values_nc = table.values_of(target["name"])
    row_of = {unit: row for row, unit in enumerate(table.units)}
    units = tuple(unit for unit in facts if np.isfinite(values_nc[row_of[unit]]).all())
    truth = values_nc[[row_of[unit] for unit in units]]
    return Side(units, tuple(fold.chosen.patient_of[unit] for unit in units), truth)


def _of_model(fold: Fold, target: Mapping[str, Any], tested: Side, trained: Side) -> Predictions:
    """The model's predictions; of survival also curves, whose baseline hazard comes from the training units."""
    name, kind = target["name"], target["kind"]
    values_nk = np.stack([fold.tested[unit].values[name] for unit in tested.units])
    if kind in ("class", "ordinal"):
        return Predictions(_as_stored(values_nk))
    if kind == "number":
        return Predictions(values_nk)
    if kind == "discrete":
        curves = DiscreteCurves(hazards_of(values_nk), tuple(target["bounds"]))
        return Predictions(-values_nk.sum(1, keepdims=True), target["median_risk"], (curves,))
    if not len(trained.units) or not trained.truth_nc[:, 1].any():
        return Predictions(values_nk, target["median_risk"])
    risks = np.stack([fold.trained[unit].values[name] for unit in trained.units])
    return Predictions(values_nk, target["median_risk"], _cox_curves(trained, risks, values_nk))


def _as_stored(probabilities_nk: Values) -> Values:
    """Probabilities as 32-bit numbers, so that what `units.csv` states is exactly what was measured."""
    return probabilities_nk.astype(np.float32).astype(np.float64)


def hazards_of(survival_nb: Values) -> Values:
    """Probability of an event in each interval, of those who reached it; 1 where nobody does."""
    before = np.concatenate([np.ones((len(survival_nb), 1)), survival_nb[:, :-1]], axis=1)
    ratio = np.divide(survival_nb, before, out=np.zeros_like(survival_nb), where=before > 0)
    return np.asarray(np.clip(1 - ratio, 0.0, 1.0), np.float64)


def _cox_curves(trained: Side, trained_risks: Values, tested_risks: Values) -> tuple[Curves, ...]:
    hazard = breslow(trained.truth_nc[:, 0], trained.truth_nc[:, 1] == 1, trained_risks[:, 0])
    return (CoxCurves(hazard, tested_risks[:, 0]),)


def _baselines(
    fold: Fold, material: Material, sides: tuple[Side, Side], covariates: Covariates
) -> dict[str, Predictions | str]:
    tested, trained = sides
    reason = cannot_fit(material.kind, trained.truth_nc)
    if reason:
        return dict.fromkeys((MEAN_POOL, CLINICAL, UNTRAINED), f"not available: {reason}")
    means = {unit: facts.mean_d for unit, facts in {**fold.trained, **fold.tested}.items()}
    found: dict[str, Predictions | str] = {MEAN_POOL: _fitted(material, sides, _stacked(means, sides))}
    if covariates:
        matrix, _ = covariate_matrix(covariates, [*trained.units, *tested.units], trained.units)
        found[CLINICAL] = _fitted(material, sides, matrix)
    else:
        found[CLINICAL] = 'not available: name columns by --covariates "age,stage"'
    if fold.untrained_means is None:
        name = encoder_name(fold.model)
        found[UNTRAINED] = (
            f"not available: `gemslide encoder add {name} --untrained`, then embed with {name}{NAME_UNTRAINED}"
        )
    else:
        found[UNTRAINED] = _fitted(material, sides, _stacked(fold.untrained_means, sides))
    return found


def _stacked(means: Mapping[str, Values], sides: tuple[Side, Side]) -> Values:
    """Mean features of the training units, then of the tested ones."""
    tested, trained = sides
    return np.stack([means[unit] for unit in (*trained.units, *tested.units)])


def _fitted(material: Material, sides: tuple[Side, Side], both_nd: Values) -> Predictions:
    """Args: both_nd: columns of the training units, then of the tested ones."""
    _, trained = sides
    known = Known(both_nd[: len(trained.units)], trained.truth_nc, trained.patients)
    fitted = fit_linear(material.kind, known, both_nd[len(trained.units) :], len(material.classes))
    if material.kind in ("class", "ordinal"):
        return Predictions(_as_stored(fitted.tested_nk))
    if material.kind == "number":
        return Predictions(fitted.tested_nk)
    median = float(np.median(fitted.trained_nk))
    return Predictions(fitted.tested_nk, median, _cox_curves(trained, fitted.trained_nk, fitted.tested_nk))
