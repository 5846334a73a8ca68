"""The evaluation workflow: stored predictions against the labels of tiles, slides and lesions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.cohort.manifest import Cohort
from pipeline.evaluation.against import Difference, auroc_differences, one_hot
from pipeline.evaluation.baseline_note import baseline_note
from pipeline.evaluation.baselines import mean_colour, untrained_network
from pipeline.evaluation.camelyon17 import Staging, staging
from pipeline.evaluation.collect import Material, SlideCase, collect
from pipeline.evaluation.outdated import outdated_notes
from pipeline.evaluation.result import Detections, Evaluation
from pipeline.evaluation.slide_truth import Truths
from pipeline.evaluation.statistics.bootstrap import Draws, Estimate, Resamples, estimate
from pipeline.evaluation.statistics.froc import Froc, froc
from pipeline.evaluation.statistics.level import (
    Level,
    case_level,
    mean_auroc_resampled,
    overall_measures,
    positive_class,
    tile_level,
)
from pipeline.evaluation.statistics.metrics import Probabilities, tile_metrics
from pipeline.evaluation.statistics.one_class import AUROC, Cutoffs
from pipeline.evaluation.tables import by_patient, by_scanner, by_slide
from pipeline.inference.predictor import Predictor
from pipeline.project import Project
from pipeline.settings.config import EvaluateConfig
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.table import TileTable, read_table
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.foundation.progress import Advance, no_bar

THE_MODEL = "this model"
UNTRAINED = "untrained network"
MEAN_COLOUR = "mean colour (logistic regression)"
LEAD = f"{AUROC} of this model minus its own"
FOLLOWS = {
    UNTRAINED: "A network with random weights computes random features of a tile; they follow its colour and contrast.",
    MEAN_COLOUR: "It sees three numbers of a tile, its mean red, green and blue.",
}
"""Explanation of what each baseline, which learnt nothing about tissue, relies on."""


def evaluate_model(
    project: Project,
    model_id: str,
    tile_set: str,
    config: EvaluateConfig,
    *,
    cohort: Cohort | None = None,
    against: str | None = None,
    baselines: Advance | None = no_bar,
) -> Evaluation:
    """Compare a model's stored predictions with the labels of one split.

    Args:
        cohort: the manifest that the tile set was made from; it has the labels of slides and the outlines of lesions.
        against: id of a second model, compared with the first on the same tiles and slides.
        baselines: progress of the untrained network; None: without baselines.

    Raises:
        EmptyTableError: no labelled tiles in that split. UnreadableError: a slide without predictions of this model.
        BadRecipeError: the model takes other tiles or has other classes than the tile set.
        BadManifestError, BadAnnotationError: a manifest that is not the tile set's; unusable candidates.
    """
    package = project.model_path(model_id)
    predictor = Predictor.load(package)
    table = read_table(project.tile_table_path(tile_set))
    dataset = TileDataset(project.root, tile_set, predictor.class_names, stain=predictor.stain or "none")
    _check_same_tiles(predictor, dataset, tile_set)
    _check_labelled(dataset, tile_set, config.split)
    truths = Truths(table, cohort, predictor.class_names)

    def collect_model(of: str) -> Material:
        return collect(project, of, table, dataset.labels, predictor.class_names, config, truths)

    if against is not None:
        _check_same_classes(project, against, predictor)
    material, second = collect_model(model_id), collect_model(against) if against is not None else None
    probabilities = {THE_MODEL: material.probabilities_nk}
    if baselines is not None:
        probabilities[UNTRAINED] = untrained_network(package, dataset, material.chosen, baselines)
        probabilities[MEAN_COLOUR] = mean_colour(dataset, material.chosen)
    evaluation = _evaluation(model_id, tile_set, predictor.class_names, config, table, material, probabilities)
    notes = [evaluation.note, *outdated_notes(project, table, model_id)]
    return replace(
        evaluation,
        note=" ".join(note for note in notes if note),
        outdated=tuple(notes[1:]),
        trained_on_this_split=predictor.split_sha256 == dataset.fingerprint,
        against=against,
        differences=tuple(_differences(material, second, config, predictor.class_names)) if second else (),
    )


def _evaluation(
    model_id: str,
    tile_set: str,
    classes: tuple[str, ...],
    config: EvaluateConfig,
    table: TileTable,
    material: Material,
    probabilities: Mapping[str, Probabilities],
) -> Evaluation:
    """All measures of one model and its baselines."""
    resamples = _evaluate_tiles(material, config)
    positive = positive_class(classes)
    methods = _methods(material, probabilities, resamples, config.threshold, positive)
    of_tiles = tile_level(
        material.labels, material.probabilities_nk, methods[THE_MODEL], resamples, _cutoffs(config), classes
    )
    levels = (of_tiles, *_case_levels(material, config, classes))
    assert of_tiles.confusion is not None
    common = (material.rows, material.labels, material.probabilities_nk, config.threshold)
    scanners = table.metadata.get("scanners", {})
    return Evaluation(
        model_id=model_id,
        tile_set=tile_set,
        split=config.split,
        threshold=config.threshold,
        classes=classes,
        config=config,
        flow=material.flow,
        by_method={
            name: tile_metrics(material.labels, values, config.threshold, positive)
            for name, values in probabilities.items()
        },
        methods=methods,
        levels=levels,
        froc=_frocs(material, config),
        without_lesions={hits.class_name: hits.left_out for hits in material.lesions if hits.left_out},
        staging=_staging(material.cases, config),
        by_slide=by_slide(*common, classes, material.cases),
        by_patient=by_patient(*common, material.cases, positive),
        by_scanner=by_scanner(*common, scanners, positive=positive, draws=Draws(config.bootstrap, config.seed)),
        confusion=of_tiles.confusion,
        note=str(table.metadata["settings"].get("note", "")),
        baseline_note=baseline_note(methods, FOLLOWS, material.flow.evaluated_patients),
        detections=_detections(material, classes),
    )


def _check_same_tiles(predictor: Predictor, dataset: TileDataset, tile_set: str) -> None:
    if (predictor.tile_px, predictor.mpp) != (dataset.tile_px, dataset.mpp):
        raise BadRecipeError(
            f"model {predictor.model_id} takes tiles of {predictor.tile_px} px at {predictor.mpp} µm/px, but tile set "
            f"{tile_set!r} has {dataset.tile_px} px at {dataset.mpp} µm/px. Make a tile set with the model's values."
        )


def _check_labelled(dataset: TileDataset, tile_set: str, split: str) -> None:
    if not ((dataset.splits == split) & (dataset.labels >= 0)).any():
        raise EmptyTableError(
            f"tile set {tile_set!r} has no labelled tiles in split {split!r}. "
            "Annotate slides of that split, or choose another --split."
        )


def _check_same_classes(project: Project, against: str, predictor: Predictor) -> None:
    other = Predictor.load(project.model_path(against)).class_names
    if other != predictor.class_names:
        raise BadRecipeError(
            f"model {against} has the classes {list(other)}, model {predictor.model_id} {list(predictor.class_names)}. "
            "Two models can be compared only if they have the same classes in the same order."
        )


def _draw(patients: NDArray[np.str_] | list[str], config: EvaluateConfig) -> Resamples:
    return Resamples.draw(patients, resamples=config.bootstrap, seed=config.seed)


def _evaluate_tiles(material: Material, config: EvaluateConfig) -> Resamples:
    return _draw(material.rows["patient"].to_numpy(dtype=str), config)


def _methods(
    material: Material,
    probabilities: Mapping[str, Probabilities],
    resamples: Resamples,
    threshold: float,
    positive: int,
) -> dict[str, dict[str, Estimate]]:
    """Overall measures of each method, and the model's lead over it in the same resamples."""
    methods = {
        name: overall_measures(material.labels, values, resamples, threshold, positive)
        for name, values in probabilities.items()
    }
    own = methods[THE_MODEL][AUROC].value
    for name, values in probabilities.items():
        other = methods[name][AUROC].value
        if name != THE_MODEL and own is not None and other is not None:
            of_both = [mean_auroc_resampled(material.labels, v, resamples) for v in (material.probabilities_nk, values)]
            methods[name][LEAD] = estimate(own - other, of_both[0] - of_both[1])
    return methods


def _case_levels(material: Material, config: EvaluateConfig, classes: tuple[str, ...]) -> list[Level]:
    levels = []
    for name in ("slide", "patient"):
        patients, truth_nk, scores_nk = cases_at(name, material.cases)
        if len(patients):
            resamples = _draw(patients, config)
            levels.append(case_level(name, truth_nk, scores_nk, resamples, _cutoffs(config), classes))
    return levels


def _cutoffs(config: EvaluateConfig) -> Cutoffs:
    return Cutoffs(config.threshold, config.specificities, config.calibration_bins)


def cases_at(level: str, cases: tuple[SlideCase, ...]) -> tuple[list[str], NDArray[np.bool_], NDArray[np.float64]]:
    """Patients, truths and scores (cases, classes) of the slides with a known truth, or of their patients.

    A patient has the classes of all the patient's slides, and the highest score of each class.
    """
    known = [(case, case.truth.has) for case in cases if case.truth.has is not None]
    if not known:
        return [], np.zeros((0, 0), bool), np.zeros((0, 0))
    patients = [case.patient for case, _ in known]
    truth_nk, scores_nk = np.stack([has for _, has in known]), np.stack([case.scores for case, _ in known])
    if level == "slide":
        return patients, truth_nk, scores_nk
    number_of = {name: number for number, name in enumerate(dict.fromkeys(patients))}
    own = np.array([number_of[patient] for patient in patients])
    has, highest = (np.zeros((len(number_of), truth_nk.shape[1]), kind) for kind in (bool, float))
    np.logical_or.at(has, own, truth_nk)
    np.maximum.at(highest, own, scores_nk)
    return list(number_of), has, highest


def _frocs(material: Material, config: EvaluateConfig) -> tuple[Froc, ...]:
    computed = [
        froc(
            hits.class_name,
            hits.slides,
            isolated=hits.isolated,
            candidates=sum(len(c) for c in hits.candidates.values()),
            resamples=config.bootstrap,
            seed=config.seed,
        )
        for hits in material.lesions
    ]
    return tuple(curve for curve in computed if curve is not None)


def _staging(cases: tuple[SlideCase, ...], config: EvaluateConfig) -> Staging | None:
    nodes = [(case.patient, *case.node) for case in cases if case.node]
    if not nodes:
        return None
    patients, reference, predicted = zip(*nodes, strict=True)
    return staging(patients, reference, predicted, resamples=config.bootstrap, seed=config.seed)


def _differences(
    first: Material, second: Material, config: EvaluateConfig, classes: tuple[str, ...]
) -> list[Difference]:
    truth_nk = one_hot(first.labels, len(classes))
    resamples = _evaluate_tiles(first, config)
    rows = auroc_differences("tile", truth_nk, first.probabilities_nk, second.probabilities_nk, resamples, classes)
    both = {case.slide_id for case in first.cases} & {case.slide_id for case in second.cases}
    shared = [tuple(case for case in side.cases if case.slide_id in both) for side in (first, second)]
    for level in ("slide", "patient"):
        patients, truth_nk, scores_nk = cases_at(level, shared[0])
        if patients:
            other_nk = cases_at(level, shared[1])[2]
            rows += auroc_differences(level, truth_nk, scores_nk, other_nk, _draw(patients, config), classes)
    return rows


def _detections(material: Material, classes: tuple[str, ...]) -> dict[str, Detections]:
    return {
        hits.class_name: Detections(
            candidates=hits.candidates,
            slide_scores={c.slide_id: float(c.scores[classes.index(hits.class_name)]) for c in material.cases},
        )
        for hits in material.lesions
    }
