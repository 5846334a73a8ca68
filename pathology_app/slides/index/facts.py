"""Facts about one slide for a list, read from its files; and a stamp that changes when one of these files does."""

from __future__ import annotations

import hashlib
import os
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pathology_app.html.text import READ_ERRORS, as_text, message_of
from pathology_app.slides.answers import class_scores, read_answer, short_text
from pathology_app.slides.cache import SlideCache
from pipeline.inference.results.hotspots import Hotspot
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import Project
from pipeline.slide_level.record import RECORD
from pipeline.store.format.layout import ATTENTION, PREDICTIONS
from pipeline.store.layers.tissue_origin import OUTDATED, outdated_models
from training.foundation.words.class_names import MAX_CLASS_NAME_LENGTH
from training.foundation.words.names import NAME_PATTERN, is_name

MAX_MODELS = 1_000
MAX_TEXT = 600
MAX_ANSWER = 2_000
"""Characters of a slide-level model's answer."""
MAX_TILES = 2**53

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
ClassName = Annotated[str, Field(max_length=2 * MAX_CLASS_NAME_LENGTH)]
Side = Annotated[int, Field(gt=0, le=2**31)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class ModelFacts(_Strict):
    """Results of one model for a slide.

    Attributes:
        top_scores: score of the strongest hotspot of each class that has one; None if no hotspot list can be read,
            unlike an empty list.
    """

    model_id: Name
    top_scores: dict[ClassName, Share] | None


class AnswerFacts(_Strict):
    """What a slide-level model says of a slide or its patient.

    Attributes:
        text: in a few words.
        scores: probability of each class, as "target: class".
    """

    model_id: Name
    text: Annotated[str, Field(max_length=MAX_ANSWER)]
    scores: dict[Annotated[str, Field(max_length=MAX_ANSWER)], Share]


class SlideFacts(_Strict):
    """One slide of a list. An unreadable slide has only id, stamp and note.

    Attributes:
        stamp: changes when one of the files that were read changes.
        version: version of the slide's image, for links.
        damaged_tiles: number of damaged tiles in the source file.
        verdict: QC verdict; None if QC was not run.
        ingested_utc: as stated in the store.
        models: models of tiles with predictions.
        slide_models: slide-level models with results.
        answers: their predictions, of those that can be read.
        note: faults of the slide's files.
    """

    slide_id: Text
    """The folder's name: it may not be a valid slide name, and then the note says so."""
    stamp: Text
    version: Text | None = None
    size_wh_px0: tuple[Side, Side] | None = None
    mpp0: Annotated[float, Field(gt=0)] | None = None
    tissue_mm2: Annotated[float, Field(ge=0)] | None = None
    stain: Text | None = None
    scanner: Text | None = None
    damaged_tiles: Annotated[int, Field(ge=0, le=MAX_TILES)] = 0
    verdict: Text | None = None
    ingested_utc: Text | None = None
    models: Annotated[tuple[ModelFacts, ...], Field(max_length=MAX_MODELS, strict=False)] = ()
    slide_models: Annotated[tuple[Name, ...], Field(max_length=MAX_MODELS, strict=False)] = ()
    answers: Annotated[tuple[AnswerFacts, ...], Field(max_length=MAX_MODELS, strict=False)] = ()
    note: Text = ""

    @property
    def model_ids(self) -> tuple[str, ...]:
        """Every model with results for the slide."""
        return (*(model.model_id for model in self.models), *self.slide_models)

    def top_score(self, model_id: str | None = None, class_name: str | None = None) -> float | None:
        """The highest hotspot score, of all models and classes or of those named; of a slide-level model that is named,
        its probability of the class."""
        scores = [
            score
            for answer in self.answers
            for name, score in answer.scores.items()
            if model_id == answer.model_id and class_name in (None, name)
        ]
        scores += [
            score
            for model in self.models
            for name, score in (model.top_scores or {}).items()
            if model_id in (None, model.model_id) and class_name in (None, name)
        ]
        return max(scores, default=None)


def stamp_of(project: Project, slide_id: str) -> str:
    """Fingerprint of a slide's files as they are now. It reads only their times and locations.

    Raises:
        BadManifestError: the folder's name is not a slide name.
        OSError: the folder cannot be read.
    """
    store = project.stored_at(slide_id)
    seen: list[object] = [_identity(store / "zarr.json"), _identity(store / PREDICTIONS)]
    for model_id in _model_folders(store, ATTENTION):
        seen.append((ATTENTION, model_id, _identity(store / ATTENTION / model_id / "zarr.json")))
        seen.append(_identity(project.result_dir(slide_id, model_id) / RECORD))
    for model_id in _model_folders(store, PREDICTIONS):
        seen.append((model_id, _identity(store / PREDICTIONS / model_id / "zarr.json")))
        seen.append(_identity(project.result_dir(slide_id, model_id) / "hotspots.json"))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:20]


def read_facts(cache: SlideCache, slide_id: str) -> SlideFacts:
    """Read a slide's facts, damaged or not. The note reports anything unreadable."""
    root = cache.project.root
    stamp = ""
    try:
        stamp = stamp_of(cache.project, slide_id)
        summary = cache.summary(slide_id)
        model_ids = cache.model_ids(slide_id)[:MAX_MODELS]
        slide_models = tuple(cache.attention_ids(slide_id)[:MAX_MODELS])
    except READ_ERRORS as error:
        return SlideFacts(slide_id=slide_id, stamp=stamp, note=message_of(error, root)[:MAX_TEXT])
    models, notes = [], []
    for model_id in model_ids:
        try:
            hotspots = cache.hotspots(slide_id, model_id)
        except READ_ERRORS as error:
            hotspots = None
            notes.append(f"Hotspots unknown: {message_of(error, root)}")
        models.append(ModelFacts(model_id=model_id, top_scores=None if hotspots is None else _tops(hotspots.spots)))
    answers = [answer for model_id in slide_models if (answer := _answer(cache, slide_id, model_id)) is not None]
    if len(answers) < len(slide_models):
        notes.append("A slide-level prediction cannot be read.")  # which one, the slide's own page says
    notes += _outdated(cache.project.stored_at(slide_id))
    return SlideFacts(
        slide_id=slide_id,
        stamp=stamp,
        version=summary.version,
        size_wh_px0=summary.size_wh_px0,
        mpp0=summary.mpp0,
        tissue_mm2=summary.tissue_mm2,
        stain=summary.stain,
        scanner=as_text(summary.scanner) if summary.scanner else None,
        damaged_tiles=min(summary.damaged_tiles, MAX_TILES),
        verdict=summary.verdict,
        ingested_utc=summary.ingested_utc,
        models=tuple(models),
        slide_models=slide_models,
        answers=tuple(answers),
        note=as_text(" ".join(notes)),
    )


def _answer(cache: SlideCache, slide_id: str, model_id: str) -> AnswerFacts | None:
    try:
        answer = read_answer(cache, slide_id, model_id)
    except READ_ERRORS:
        return None
    scores = {name: value for name, value in class_scores(answer).items() if len(name) <= MAX_ANSWER}
    return AnswerFacts(model_id=model_id, text=short_text(answer)[:MAX_ANSWER], scores=scores)


def _outdated(store: StorePath) -> list[str]:
    """A sentence if predictions were made with a different tissue mask; it names no model."""
    try:
        return [f"Predictions outdated: {OUTDATED}."] if outdated_models(store) else []
    except READ_ERRORS:  # the slide's own page reports the error
        return []


def _tops(hotspots: list[Hotspot]) -> dict[str, float]:
    tops: dict[str, float] = {}
    for spot in hotspots:
        tops[spot["class"]] = max(spot["score"], tops.get(spot["class"], 0.0))
    return tops


def _model_folders(store: StorePath, layer: str) -> list[str]:
    folder = store / layer
    try:
        names = folder.names() if isinstance(folder, ObjectPath) else os.listdir(folder)
        return sorted(name for name in names if is_name(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _identity(path: StorePath) -> tuple[str | int, ...] | None:
    """Identity of a file, without the device number, which may change when the same disk is mounted again."""
    try:
        if isinstance(path, ObjectPath):
            return path.identity()
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
