"""Data for an evaluation, slide by slide: probabilities and labels of tiles, scores and truths of slides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.evaluation.camelyon17 import NODE_LABELS, node_label
from pipeline.evaluation.camelyon_files import MAX_CANDIDATES, read_candidates
from pipeline.evaluation.slide_truth import SlideTruth, Truths
from pipeline.evaluation.statistics.froc import Candidates, SlideHits, hit_slide
from pipeline.evaluation.statistics.lesions import lesions_of
from pipeline.evaluation.statistics.metrics import Probabilities
from pipeline.evaluation.stored import longest_extent_um, slide_scores, tile_probabilities
from pipeline.inference.results.hotspots import find_hotspots
from pipeline.project import Project
from pipeline.settings.config import EvaluateConfig
from pipeline.store.layers.overlays import Predictions, read_predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.table import TileTable
from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.words.class_order import lesion_classes, positive_of_two


@dataclass(frozen=True)
class SlideCase:
    """One slide that was evaluated."""

    slide_id: str
    patient: str
    scores: NDArray[np.float64]
    """(classes,), by `[evaluate] slide_score`."""
    truth: SlideTruth
    node: tuple[str, str] | None
    """CAMELYON17's node label from the manifest, and as predicted; None for other labels."""


@dataclass
class LesionHits:
    """One class's lesions on all slides whose lesions are known."""

    class_name: str
    slides: list[SlideHits] = field(default_factory=list)
    candidates: dict[str, Candidates] = field(default_factory=dict)
    """By slide."""
    isolated: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    """Slides whose lesions are not outlined, and why."""


@dataclass(frozen=True)
class Flow:
    """Counts of slides, patients and tiles at each step of the study."""

    slides: int
    patients: int
    tiles: int
    """All tiles in the split."""
    labelled_tiles: int
    labelled_by_class: dict[str, int]
    evaluated_slides: int
    evaluated_patients: int
    slides_with_truth: int
    own_patients: int
    """Evaluated slides without a patient, each treated as a separate patient."""
    left_out: tuple[tuple[str, str], ...]
    """Slides that are missing at a step, and why."""


@dataclass(frozen=True)
class Material:
    """All data from which measures are computed."""

    rows: pd.DataFrame
    """Labelled tiles of evaluated slides, in the order of `probabilities_nk`; with `patient`, never empty."""
    chosen: NDArray[np.int64]
    """Their positions in the tile table."""
    labels: NDArray[np.int64]
    probabilities_nk: Probabilities
    cases: tuple[SlideCase, ...]
    lesions: tuple[LesionHits, ...]
    flow: Flow


def collect(
    project: Project,
    model_id: str,
    table: TileTable,
    labels: NDArray[np.int64],
    class_names: Sequence[str],
    config: EvaluateConfig,
    truths: Truths,
) -> Material:
    """Read a split's stored predictions.

    Args:
        labels: class index of each row of the table in the order of `class_names`, −1 for none; the split must have
            some.

    Raises:
        EmptyTableError: the model did not predict a labelled tile.
        UnreadableError: a slide with labelled tiles has no predictions.
        BadRecipeError: predictions of other classes or squares. BadManifestError, BadAnnotationError: from the truths.
    """
    in_split = np.flatnonzero((table.frame["split"] == config.split).to_numpy(bool))
    rows = table.frame.iloc[in_split].assign(label_index=labels[in_split], position=in_split)
    patients = {str(s): p if isinstance(p, str) else None for s, p in _first(rows, "patient_id").items()}
    truths.check(patients)
    gathered = _Gathered(project, model_id, tuple(class_names), config, truths, patients)
    for slide_id, group in rows.groupby("slide_id", sort=False):
        gathered.add(str(slide_id), group)
    labelled = pd.concat(gathered.tiles)
    every = [patients[s] or s for s in patients]
    counts = Counter(labelled["label_index"].tolist())
    return Material(
        rows=labelled,
        chosen=labelled["position"].to_numpy(np.int64),
        labels=labelled["label_index"].to_numpy(np.int64),
        probabilities_nk=np.concatenate(gathered.probabilities),
        cases=tuple(gathered.cases),
        lesions=tuple(gathered.lesions.values()),
        flow=Flow(
            slides=len(patients),
            patients=len(set(every)),
            tiles=len(rows),
            labelled_tiles=len(labelled),
            labelled_by_class={name: counts[k] for k, name in enumerate(class_names)},
            evaluated_slides=len(gathered.cases),
            evaluated_patients=len({case.patient for case in gathered.cases}),
            slides_with_truth=sum(case.truth.has is not None for case in gathered.cases),
            own_patients=sum(patients[case.slide_id] is None for case in gathered.cases),
            left_out=(*_left_out_of_tile_set(table), *gathered.left_out),
        ),
    )


def _left_out_of_tile_set(table: TileTable) -> list[tuple[str, str]]:
    """Slides of any split that could not be tiled, and the reason's code."""
    left_out: dict[str, str] = table.metadata.get("left_out", {})
    return [(slide_id, f"not in the tile set: {code}") for slide_id, code in left_out.items()]


class _Gathered:
    """Data collected from the slides so far."""

    def __init__(
        self,
        project: Project,
        model_id: str,
        class_names: tuple[str, ...],
        config: EvaluateConfig,
        truths: Truths,
        patients: dict[str, str | None],
    ) -> None:
        self._project, self._model_id, self._class_names = project, model_id, class_names
        self._config, self._truths, self._patients = config, truths, patients
        self.tiles: list[pd.DataFrame] = []
        self.probabilities: list[Probabilities] = []
        self.cases: list[SlideCase] = []
        self.left_out: list[tuple[str, str]] = []
        self.lesions = {name: LesionHits(name) for name in _lesion_classes(class_names, config)}

    def add(self, slide_id: str, group: pd.DataFrame) -> None:
        """Add one slide's tiles, truth and lesions."""
        labelled = group[group["label_index"] >= 0]
        try:
            reader = StoreReader(self._project.stored_at(slide_id))
            predictions = read_predictions(reader.path, self._model_id)
        except UnreadableError:
            if len(labelled):
                raise
            self.left_out.append((slide_id, "no readable store, or no predictions of this model"))
            return
        check_classes(predictions, self._class_names, slide_id)
        patient = self._patients[slide_id] or slide_id
        if len(labelled):
            self.tiles.append(labelled.assign(patient=patient))
            self.probabilities.append(tile_probabilities(slide_id, self._model_id, labelled, predictions))
        truth = self._truths.of(reader, set(labelled["label_index"].tolist()))
        if truth.has is None:
            self.left_out.append((slide_id, f"the whole slide has no label: {truth.says}"))
        scores = slide_scores(predictions, self._config.slide_score)
        node = self._node(slide_id, predictions, reader.mpp0)
        self.cases.append(SlideCase(slide_id, patient, scores, truth, node))
        if truth.areas is not None or truth.says == "label":
            for hits in self.lesions.values():
                self._add_lesions(hits, reader, predictions, truth, patient)

    def _node(self, slide_id: str, predictions: Predictions, mpp0: float) -> tuple[str, str] | None:
        label = self._truths.label(slide_id)
        if label not in NODE_LABELS or len(self._class_names) != 2:
            return None
        extent_um = longest_extent_um(
            predictions, positive_of_two(self._class_names), threshold=self._config.threshold, mpp0=mpp0
        )
        return label, node_label(extent_um)

    def _add_lesions(
        self, hits: LesionHits, reader: StoreReader, predictions: Predictions, truth: SlideTruth, patient: str
    ) -> None:
        if not truth.lesions_known(self._class_names.index(hits.class_name), hits.class_name):
            hits.left_out[reader.slide_id] = "label and annotations disagree on lesions, or none is outlined"
            return
        areas = truth.areas.get(hits.class_name, ()) if truth.areas else ()
        lesions = lesions_of(areas, reader.size_wh_px0, reader.mpp0)
        candidates = self._candidates(hits.class_name, reader, predictions)
        hits.candidates[reader.slide_id] = candidates
        hits.slides.append(hit_slide(reader.slide_id, patient, candidates, lesions))
        hits.isolated += len(lesions.isolated) if lesions else 0

    def _candidates(self, class_name: str, reader: StoreReader, predictions: Predictions) -> Candidates:
        width, height = reader.size_wh_px0
        if self._config.candidates:
            folder = self._project.root / Path(self._config.candidates)
            return read_candidates(folder / f"{reader.slide_id}.csv", (width, height))
        spots = find_hotspots(
            predictions, (class_name,), mpp0=reader.mpp0, threshold=self._config.candidate_threshold,
            most=MAX_CANDIDATES, min_distance_um=self._config.candidate_min_distance_um,
        )  # fmt: skip
        candidates = [(s["score"], min(s["x_px0"], width - 1), min(s["y_px0"], height - 1)) for s in spots]
        return np.asarray(candidates, np.float64).reshape(-1, 3)


def check_classes(predictions: Predictions, class_names: Sequence[str], slide_id: str) -> None:
    """Check that predictions have the model's classes, in its order.

    Raises:
        BadRecipeError: they do not.
    """
    if tuple(predictions.class_names) != tuple(class_names):
        raise BadRecipeError(
            f"slide {slide_id}: the stored predictions have the classes {list(predictions.class_names)}, not "
            f"{list(class_names)}. Run `gemslide infer` again."
        )


def _lesion_classes(class_names: Sequence[str], config: EvaluateConfig) -> Sequence[str]:
    """Classes whose lesions are evaluated: those configured, else all but the first and those named as healthy.

    Raises:
        BadRecipeError: a class that the model does not have; or candidates of one file for several classes.
    """
    unknown = [name for name in config.lesion_classes if name not in class_names]
    if unknown:
        raise BadRecipeError(
            f"[evaluate] lesion_classes: {unknown} are not among the model's classes {list(class_names)}."
        )
    selected = config.lesion_classes or lesion_classes(class_names)
    if config.candidates and len(selected) > 1:
        raise BadRecipeError(
            f"[evaluate] candidates: the files do not say to which of the classes {list(selected)} a candidate "
            "belongs. Name one in lesion_classes."
        )
    return selected


def _first(rows: pd.DataFrame, column: str) -> pd.Series:
    return rows.drop_duplicates("slide_id").set_index("slide_id")[column]
