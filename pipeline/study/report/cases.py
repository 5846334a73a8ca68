"""Predictions and truth, case by case: tiles, slides or patients with a reference standard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import ChangedSourceError
from pipeline.evaluation.slide_truth import truth_of_label
from pipeline.evaluation.stored import tile_probabilities
from pipeline.export.common.cells import fingerprint
from pipeline.store.layers.overlays import read_predictions
from pipeline.study.proof.reports import tile_set_sha256
from pipeline.study.protocol import Endpoint
from pipeline.study.report.facts import Facts, text_of
from pipeline.study.slide_models import target_of
from pipeline.tiles.table import read_table
from training.foundation.errors import BadRecipeError, UnreadableError

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Cases:
    """Cases of one level, model and reference."""

    class_names: tuple[str, ...]
    slides: NDArray[np.str_]
    """The slide of each case; for a patient, the first one."""
    patients: NDArray[np.int64]
    """Number of each case's patient."""
    truth_nk: NDArray[np.bool_]
    """bool (cases, classes)."""
    scores_nk: NDArray[np.float64]
    """float64 (cases, classes)."""

    def __len__(self) -> int:
        return len(self.slides)

    def only(self, chosen: NDArray[np.bool_]) -> Cases:
        return Cases(
            self.class_names, self.slides[chosen], self.patients[chosen], self.truth_nk[chosen], self.scores_nk[chosen]
        )


def cases_of(facts: Facts, endpoints: Sequence[Endpoint]) -> dict[str, Cases]:
    """The cases of endpoint endpoint, by its name: slides that are done, and have a reference standard.

    Endpoints of the same model and level share their cases.

    Raises:
        UnreadableError: no tile set, or damaged predictions. BadRecipeError: the two do not match.
    """
    cases: dict[tuple[str, str | None, str], Cases] = {}
    for endpoint in endpoints:
        key = (endpoint.model, endpoint.target)
        if endpoint.level != "tile" and (*key, "slide") not in cases:
            cases[*key, "slide"] = slide_cases(facts, endpoint)
        if endpoint.level == "patient" and (*key, "patient") not in cases:
            cases[*key, "patient"] = _by_patient(cases[*key, "slide"])
    return {
        endpoint.name: _tiles(facts, endpoint)
        if endpoint.level == "tile"
        else cases[endpoint.model, endpoint.target, endpoint.level]
        for endpoint in endpoints
    }


def slide_cases(facts: Facts, endpoint: Endpoint) -> Cases:
    """Slides with a label in the manifest, and their scores from the ledger; what a model said of a patient is the
    score of each slide of the patient."""
    done = set(facts.slides.index[facts.slides["state"] == "done"])
    of_model = facts.tasks[(facts.tasks["stage"] == _task(facts, endpoint)) & facts.tasks["measures"].notna()]
    labels, patients = facts.slides["label"].to_dict(), facts.slides["patient"].to_dict()
    rows = []
    class_names: tuple[str, ...] = ()
    for slide_id, measures in zip(of_model["slide_id"], of_model["measures"], strict=True):
        class_names, scores = _scores(facts, endpoint, measures)
        label = text_of(labels[slide_id])
        truth = truth_of_label(label, class_names) if label else None
        if slide_id in done and truth is not None:
            rows.append((slide_id, patients[slide_id], truth, scores))
    return _cases(class_names, rows)


def _task(facts: Facts, endpoint: Endpoint) -> str:
    return next(model.task for model in facts.protocol.models if model.id == endpoint.model)


def _scores(facts: Facts, endpoint: Endpoint, measures: dict[str, Any]) -> tuple[tuple[str, ...], list[float]]:
    """The classes that an endpoint is about, and a slide's score of each."""
    if "answers" not in measures:
        return tuple(measures["classes"]), measures["scores"][facts.protocol.analysis.slide_score]
    answer = measures["answers"][target_of(endpoint, measures["answers"])]
    return tuple(answer["classes"]), answer["values"]


def _cases(class_names: tuple[str, ...], rows: list[tuple[str, str, NDArray[np.bool_], list[float]]]) -> Cases:
    shape = (len(rows), len(class_names))
    return Cases(
        class_names,
        np.array([row[0] for row in rows], dtype=str),
        _numbers([row[1] for row in rows]),
        np.array([row[2] for row in rows], dtype=bool).reshape(shape),
        np.array([row[3] for row in rows], dtype=np.float64).reshape(shape),
    )


def _numbers(patients: Sequence[str]) -> NDArray[np.int64]:
    """A number for each patient, in order of first appearance."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(patient, len(known)) for patient in patients], dtype=np.int64)


def _by_patient(slides: Cases) -> Cases:
    """Cases by patient: the classes of all slides, and the highest score of each class."""
    names, first, number = np.unique(slides.patients, return_index=True, return_inverse=True)
    shape = (len(names), len(slides.class_names))
    truth_nk, scores_nk = np.zeros(shape, bool), np.zeros(shape)
    np.logical_or.at(truth_nk, number, slides.truth_nk)
    np.maximum.at(scores_nk, number, slides.scores_nk)
    return Cases(slides.class_names, slides.slides[first], names, truth_nk, scores_nk)


def _tiles(facts: Facts, endpoint: Endpoint) -> Cases:
    project = facts.study.project
    assert endpoint.tile_set is not None
    table = read_table(project.tile_table_path(endpoint.tile_set))
    if tile_set_sha256(project, endpoint.tile_set) != facts.tile_sets[endpoint.tile_set]:
        raise ChangedSourceError(
            f"endpoint {endpoint.name}: tile set {endpoint.tile_set} was replaced while the report was being "
            "made. Make the report again."
        )
    frame = table.frame[table.frame["label"].notna() & (table.frame["label"] != "")]
    done = facts.slides.index[facts.slides["state"] == "done"]
    patients = facts.slides["patient"].to_dict()
    of_model = facts.tasks[facts.tasks["stage"] == _task(facts, endpoint)]
    hashes = dict(zip(of_model["slide_id"], of_model["output_sha256"], strict=True))
    parts, class_names = [], None
    for slide_id, rows in frame[frame["slide_id"].isin(done)].groupby("slide_id", sort=False):
        predictions = read_predictions(project.stored_at(str(slide_id)), endpoint.model)
        if fingerprint(predictions) != hashes.get(slide_id):
            raise ChangedSourceError(
                f"endpoint {endpoint.name}: slide {slide_id}: its predictions by {endpoint.model} do not match the "
                f"ledger: they were replaced. `gemslide study verify {facts.row.study_id}` lists all that was "
                "changed. Restore them from a backup, or delete them and make them again with `gemslide infer`."
            )
        class_names = predictions.class_names
        unknown = sorted(set(rows["label"]) - set(class_names))
        if unknown:
            raise BadRecipeError(
                f"endpoint {endpoint.name}: tile set {endpoint.tile_set} has labels that model {endpoint.model} does "
                f"not know: {', '.join(unknown[:5])}; it has {', '.join(class_names)}."
            )
        truth_nk = rows["label"].to_numpy(dtype=str)[:, None] == np.array(class_names)[None]
        scores_nk = tile_probabilities(str(slide_id), endpoint.model, rows, predictions).astype(np.float64)
        parts.append((np.full(len(rows), slide_id), np.full(len(rows), patients[slide_id]), truth_nk, scores_nk))
    if class_names is None:
        raise UnreadableError(
            f"endpoint {endpoint.name}: tile set {endpoint.tile_set} has no labelled tiles on finished slides of "
            "this study. Make it from the study's slides with `gemslide tile`."
        )
    slides, owners, truth_nk, scores_nk = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Cases(class_names, slides.astype(str), _numbers(owners.tolist()), truth_nk, scores_nk)


def groups_of(facts: Facts, cases: Cases, column: str) -> dict[str, NDArray[np.bool_]]:
    """Mask of the cases of each site or scanner; empty if there is only one.

    Args:
        column: "site" or "scanner".
    """
    names = facts.slides[column].to_dict()
    own = [text_of(names.get(slide_id)) or NOT_KNOWN for slide_id in cases.slides.tolist()]
    groups, number = np.unique(np.array(own, dtype=str), return_inverse=True)
    return {str(name): number == index for index, name in enumerate(groups)} if len(groups) > 1 else {}
