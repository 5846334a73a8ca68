"""The evaluation of slide-level models: predictions from stored features against targets, per patient or slide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.cohort.manifest import Cohort
from pipeline.evaluation.slide_level.chosen import choose_units, refuse_tested_twice
from pipeline.evaluation.slide_level.collect import Fold, collect
from pipeline.evaluation.slide_level.compare import Covariates, material_of
from pipeline.evaluation.slide_level.covariates import read_covariates
from pipeline.evaluation.slide_level.drawings import drawings_of
from pipeline.evaluation.slide_level.material import THE_MODEL, Material, Predictions, pooled
from pipeline.evaluation.slide_level.measures import MAIN, Measured, called, labels_of, measure, paired_delong
from pipeline.evaluation.slide_level.result import Lead, MethodResult, SlideEvaluation, TargetResult
from pipeline.evaluation.slide_level.survival_measures import FollowUp, survival_part
from pipeline.evaluation.slide_level.table import unit_rows
from pipeline.evaluation.slide_level.wrong import SORTED_BY, most_wrong
from pipeline.evaluation.statistics.bootstrap import Resamples, estimate
from pipeline.project import Project
from pipeline.settings.config import EvaluateConfig
from pipeline.slide_level import Clinical, SlideModel, TargetRow, TargetTable, target_values, units_of
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.foundation.progress import Advance, no_bar
from training.foundation.words.counts import counted, first_of

POOLED = (
    "Risks of different models have no common zero. In the pooled results, each model's median risk in training counts "
    "as 0; the results of each model on its own test units are beside them."
)
SHOWN = 5
"""Names in a sentence."""
NOT_TEST = "These units trained or chose the model: the results say nothing about new ones."


@dataclass(frozen=True)
class LabelledSlides:
    """What models are compared with."""

    cohort: Cohort
    clinical: Clinical | None
    covariates: tuple[str, ...] = ()
    """Clinical columns of the baseline that sees no slide."""


def evaluate_slides(
    project: Project,
    packages: Sequence[Path],
    labelled: LabelledSlides,
    config: EvaluateConfig,
    *,
    baselines: bool = True,
    advance: Advance = no_bar,
) -> SlideEvaluation:
    """Compare predictions of one model, or of the models of several folds, with the targets of their test units.

    Raises:
        LeakageError: a tested unit trained or chose its model. EmptyTableError: no tested unit with features or values.
        BadRecipeError: models that do not belong together, or unusable covariates.
        BadManifestError: a manifest or table that cannot be used.
        UnreadableError, WrongSlideError: damaged features, or others than the models'.
    """
    models = [SlideModel.load(package) for package in packages]
    _refuse_different(models)
    first, cohort = models[0], labelled.cohort
    chosen = {model.model_id: choose_units(model, cohort, config.split) for model in models}
    refuse_tested_twice(chosen)
    table = _targets(first, labelled)
    covariates = _covariates(first, labelled)
    folds = [
        collect(
            model, project, cohort, chosen[model.model_id], advance, with_trained=baselines or _needs_trained(first)
        )
        for model in models
    ]
    materials = [
        [m for fold in folds if (m := material_of(fold, target, table, covariates, baselines=baselines))]
        for target in first.targets
    ]
    if not any(materials):
        raise EmptyTableError(
            f"{cohort.path}: no tested {first.config.level} has a value of any target of model {first.model_id}. Give "
            "the clinical table that has them (--table)."
        )
    results = [_target_result(parts, folds, config) for parts in materials if parts]
    return _evaluation(folds, results, [pooled(parts) for parts in materials if parts], config, table.notes)


def _refuse_different(models: Sequence[SlideModel]) -> None:
    first = models[0]
    for other in models[1:]:
        if other.model_id == first.model_id:
            raise BadRecipeError(f"model {first.model_id} is named twice. Name each model once.")
        if _predicts(other) != _predicts(first):
            raise BadRecipeError(
                f"models {first.model_id} and {other.model_id} predict other targets, or from other features, so "
                "their results cannot be pooled. Evaluate them one by one."
            )


def _predicts(model: SlideModel) -> tuple[Any, ...]:
    config = model.config
    return (
        config.level,
        config.encoder.encoder_id,
        [(target["name"], target["kind"], target["columns"], target["classes"]) for target in model.targets],
    )


def _needs_trained(model: SlideModel) -> bool:
    return any(target["kind"] in ("cox", "discrete") for target in model.targets)


def _targets(model: SlideModel, labelled: LabelledSlides) -> TargetTable:
    rows = [
        TargetRow(
            name=target["name"],
            columns=tuple(target["columns"]),
            kind="survival" if target["kind"] in ("cox", "discrete") else target["kind"],
            classes=tuple(target["classes"]),
        )
        for target in model.targets
    ]
    units = units_of(labelled.cohort, model.config.level, ())
    return target_values(rows, labelled.cohort, labelled.clinical, units)


def _covariates(model: SlideModel, labelled: LabelledSlides) -> Covariates:
    of_targets = {column for target in model.targets for column in target["columns"]}
    return read_covariates(labelled.covariates, labelled.cohort, labelled.clinical, model.config.level, of_targets)


def _target_result(parts: Sequence[Material], folds: Sequence[Fold], config: EvaluateConfig) -> TargetResult:
    material = pooled(parts)
    resamples = Resamples.draw(material.patients, resamples=config.bootstrap, seed=config.seed)
    available = {name: p for name, p in material.by_method.items() if isinstance(p, Predictions)}
    measured = {name: measure(material, predictions, resamples, config) for name, predictions in available.items()}
    survival = None
    if material.kind == "survival":
        survival = survival_part(material, FollowUp.of(material), config.calibration_bins)
    facts = {unit: of for fold in folds for unit, of in fold.tested.items()}
    tiles = {unit: facts[unit].tiles for unit in material.units}
    return TargetResult(
        name=material.target["name"],
        kind=material.kind,
        classes=material.classes,
        units=len(material.units),
        patients=len(np.unique(material.patients)),
        without_value=len(facts) - len(material.units),
        by_class=_by_class(material),
        methods=_methods(material, measured),
        leads=_leads(material, measured, available),
        per_model=_per_model(parts, config),
        confusion=_confusion(material, config.threshold),
        survival=survival,
        wrong=most_wrong(material, tiles),
        error=SORTED_BY[material.kind],
        drawings=drawings_of(material, measured[THE_MODEL], survival),
    )


def _by_class(material: Material) -> dict[str, int]:
    if not material.classes:
        return {}
    counts = np.bincount(labels_of(material), minlength=len(material.classes))
    return dict(zip(material.classes, counts.tolist(), strict=True))


def _confusion(material: Material, threshold: float) -> tuple[tuple[int, ...], ...] | None:
    if not material.classes:
        return None
    number = len(material.classes)
    cell = labels_of(material) * number + called(material, material.model.values_nk, threshold)
    counts = np.bincount(cell, minlength=number**2).reshape(number, number)
    return tuple(tuple(row) for row in counts.tolist())


def _methods(material: Material, measured: Mapping[str, Measured]) -> tuple[MethodResult, ...]:
    results = []
    for name, predictions in material.by_method.items():
        if isinstance(predictions, str):
            results.append(MethodResult(name, {}, why_not=predictions))
        else:
            results.append(MethodResult(name, measured[name].measures, measured[name].delong))
    return tuple(results)


def _leads(
    material: Material, measured: Mapping[str, Measured], available: Mapping[str, Predictions]
) -> tuple[Lead, ...]:
    name = MAIN[material.kind]
    own = measured[THE_MODEL]
    leads = []
    for against, other in measured.items():
        values = own.measures[name].value, other.measures[name].value
        if against == THE_MODEL or values[0] is None or values[1] is None:
            continue
        difference = estimate(values[0] - values[1], own.main_resampled - other.main_resampled)
        tested = paired_delong(material, available[THE_MODEL].values_nk, available[against].values_nk)
        leads.append(Lead(against, name, difference, tested))
    return tuple(leads)


def _per_model(parts: Sequence[Material], config: EvaluateConfig) -> dict[str, Any]:
    if len(parts) == 1:
        return {}
    return {
        part.models[0]: measure(part, part.model, Resamples.draw(part.patients, resamples=0, seed=0), config).measures
        for part in parts
    }


def _evaluation(
    folds: Sequence[Fold],
    results: Sequence[TargetResult],
    materials: Sequence[Material],
    config: EvaluateConfig,
    of_targets: Sequence[str],
) -> SlideEvaluation:
    first = folds[0].model
    units = {unit: (fold.chosen.patient_of[unit], fold.model.model_id) for fold in folds for unit in fold.tested}
    header, rows = unit_rows(materials, units, config.threshold)
    measured = {result.name for result in results}
    absent = [target["name"] for target in first.targets if target["name"] not in measured]
    notes = [f"No tested {first.config.level} has a value of target {name}." for name in absent]
    notes += [f"{clause[0].upper()}{clause[1:]}." for clause in of_targets]
    if config.split != "test":
        notes.append(NOT_TEST)
    if len(folds) > 1 and _needs_trained(first):
        notes.append(POOLED)
    return SlideEvaluation(
        models=tuple(fold.model.model_id for fold in folds),
        level=first.config.level,
        split=config.split,
        encoder_id=first.config.encoder.encoder_id,
        resamples=config.bootstrap,
        seed=config.seed,
        threshold=config.threshold,
        tested=len(units),
        tested_patients=len({patient for patient, _ in units.values()}),
        without_features=tuple(unit for fold in folds for unit in fold.without_features),
        slides_left_out=tuple(slide_id for fold in folds for slide_id in fold.slides_left_out),
        others=min(fold.chosen.others for fold in folds),
        is_new_cohort=all(fold.chosen.is_new_cohort for fold in folds),
        targets=tuple(results),
        notes=tuple(notes),
        header=header,
        rows=rows,
    )


def explained_absence(evaluation: SlideEvaluation) -> str | None:
    """Sentences about tested units, and slides of others, without features; None if there are none."""
    level = evaluation.level
    sentences = [
        _absent(evaluation.without_features, f"tested {level}", evaluation.encoder_id, "left out"),
        _absent(
            evaluation.slides_left_out, "slide", evaluation.encoder_id, f"left out; the {level}s' other slides are used"
        ),
    ]
    return " ".join(filter(None, sentences)) or None


def _absent(names: Sequence[str], noun: str, encoder_id: str, what: str) -> str:
    if not names:
        return ""
    shown = first_of(names, SHOWN)
    have = counted(len(names), f"{noun} has", f"{noun}s have")
    are = "is" if len(names) == 1 else "are"
    return f"{have} no features of {encoder_id} and {are} {what}: {shown}."
