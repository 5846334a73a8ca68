"""Predictions of a slide-level model for a patient or slide: a record beside the stores, and attention in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import WrongSlideError
from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.jobs.key import is_finished
from pipeline.project import Project
from pipeline.run_record import versions
from pipeline.slide_level.attended import attended_geojson
from pipeline.slide_level.model import SlideModel, SlidePrediction
from pipeline.slide_level.record import ATTENDED, RECORD, read_record
from pipeline.slide_level.stored_bags import SAME_SIDE, SlideFeatures, check_alike, read_bag
from pipeline.store.layers.attention import Attention, attention_map, new_attention, read_attention
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError
from training.foundation.publish import write_bytes_atomic
from training.foundation.words.research_use import RESEARCH_USE


@dataclass(frozen=True)
class UnitPrediction:
    """What a model says of a patient or slide."""

    unit: str
    slides: tuple[str, ...]
    targets: dict[str, dict[str, Any]]
    """By name: `kind`, `values`, and as fits `classes`, `bounds`, `answer`, `group`."""
    num_tiles: int
    skipped: bool


def predict_unit(unit: str, slides: Sequence[SlideFeatures], model: SlideModel, project: Project) -> UnitPrediction:
    """Predict a patient or slide and publish the results of all its slides; finished ones are kept.

    Args:
        slides: with their features, in the order of their ids.

    Raises:
        WrongSlideError: features of another encoder, or of other tiles, than the model was trained on.
        UnreadableError: damaged features. ImplausibleOutputError: outputs that cannot be.
    """
    check_alike(slides)
    check_encoder(slides[0], model)
    key = unit_key(unit, slides, model)
    kept = _kept(slides, model, project, key)
    if kept is not None:
        return kept
    prediction = model.predict(read_bag(slides))
    targets = {target["name"]: _described(target, prediction.values[target["name"]]) for target in model.targets}
    done = UnitPrediction(unit, tuple(s.slide_id for s in slides), targets, len(prediction.attention_n), skipped=False)
    _publish(done, slides, prediction, model, project, key)
    return done


def unit_key(unit: str, slides: Sequence[SlideFeatures], model: SlideModel) -> dict[str, Any]:
    """Everything that a unit's prediction depends on, as JSON."""
    return {
        "model": {"model_id": model.model_id, "weights_sha256": model.config.weights_sha256},
        "unit": unit,
        "features": {slide.slide_id: slide.stored.attributes["values_sha256"] for slide in slides},
        "device": model.device.type,
    }


def check_encoder(slide: SlideFeatures, model: SlideModel) -> None:
    """Refuse features of another encoder, or of other tiles, than a model's. Raises WrongSlideError."""
    encoder = model.config.encoder
    if slide.stored.encoder_id != encoder.encoder_id:
        raise WrongSlideError(
            f"slide {slide.slide_id}: has features of encoder {slide.stored.encoder_id}, but model {model.model_id} "
            f"was trained on those of {encoder.encoder_id}. Run `gemslide embed` with that encoder."
        )
    weights = str(slide.stored.attributes.get("weights_sha256") or "")
    if weights != encoder.weights_sha256:
        raise WrongSlideError(
            f"slide {slide.slide_id}: its features of {encoder.encoder_id} were made with weights {weights[:12]}…, but "
            f"model {model.model_id} was trained on features of weights {encoder.weights_sha256[:12]}…. Embed it again."
        )
    check_tiles(slide, model)


def check_tiles(slide: SlideFeatures, model: SlideModel) -> None:
    """Refuse features of tiles of another size or choice than the model was trained on. Raises WrongSlideError."""
    encoder = model.config.encoder
    if abs(slide.side_um - encoder.side_um) > SAME_SIDE * encoder.side_um:
        raise WrongSlideError(
            f"slide {slide.slide_id}: its tiles are {slide.side_um:.1f} µm wide, but model {model.model_id} was "
            f"trained on tiles of {encoder.side_um:.1f} µm. Embed the slide with the model's encoder row."
        )
    for key, of_slide in slide.tiling().items():
        of_model = getattr(encoder, key)
        if None not in (of_slide, of_model) and of_slide != of_model:
            raise WrongSlideError(
                f"slide {slide.slide_id}: its tiles were chosen with [embed] {key} = {of_slide:g}, but model "
                f"{model.model_id} was trained on tiles chosen with {of_model:g}. Set that in gemslide.toml and run "
                "`gemslide embed` again."
            )


def _described(target: Mapping[str, Any], values: NDArray[np.float64]) -> dict[str, Any]:
    """A target's values with what a person needs to read them."""
    kind = target["kind"]
    described: dict[str, Any] = {"kind": kind, "values": [round(float(value), 6) for value in values]}
    if kind in ("class", "ordinal"):
        return {**described, "classes": target["classes"], "answer": target["classes"][int(values.argmax())]}
    if kind == "number":
        return {**described, "answer": round(float(values[0]), 6)}
    risk = float(values[0]) if kind == "cox" else -float(values.sum())
    median = target["median_risk"]
    if kind == "discrete":
        described["bounds"] = target["bounds"]
    if median is not None:
        described |= {"group": "higher risk" if risk >= median else "lower risk", "median_risk": median}
    return {**described, "answer": round(risk, 6)}


def _publish(
    done: UnitPrediction,
    slides: Sequence[SlideFeatures],
    prediction: SlidePrediction,
    model: SlideModel,
    project: Project,
    key: Mapping[str, Any],
) -> None:
    """Publish the results of all slides of a unit once all of them are written, the stores' first."""
    start = 0
    with ExitStack() as published:
        for slide in slides:
            shares_n = prediction.attention_n[start : start + slide.stored.num_tiles]
            start += slide.stored.num_tiles
            reader = StoreReader(project.store_path(slide.slide_id))
            folder = published.enter_context(
                new_folder(project.result_dir(slide.slide_id, model.model_id), wait_s=SHORT_WRITE_S)
            )
            attention = _attention(slide, reader, shares_n, done, model, key)
            published.enter_context(new_attention(reader.folder, attention, mpp0=reader.mpp0))
            write_bytes_atomic(folder / ATTENDED, attended_geojson(slide, shares_n, done.num_tiles, model.model_id))
            write_bytes_atomic(folder / RECORD, _record(done, model, key))


def _attention(
    slide: SlideFeatures,
    reader: StoreReader,
    shares_n: NDArray[np.float32],
    done: UnitPrediction,
    model: SlideModel,
    key: Mapping[str, Any],
) -> Attention:
    stored = slide.stored
    map_yx = attention_map(
        shares_n, stored.xy0_n2, stride_px0=stored.stride_px0, size_wh_px0=reader.size_wh_px0, num_tiles=done.num_tiles
    )
    made_from = {"source_sha256": reader.source_sha256, **key}
    attributes = {"made_from": made_from, "versions": versions(), "unit": done.unit, "slides": list(done.slides)}
    return Attention(model.model_id, map_yx, stored.stride_px0, stored.side_px0, attributes)


def _record(done: UnitPrediction, model: SlideModel, key: Mapping[str, Any]) -> bytes:
    content = {
        "about": RESEARCH_USE,
        "model_id": model.model_id,
        "level": model.config.level,
        "unit": done.unit,
        "slides": list(done.slides),
        "tiles": done.num_tiles,
        "targets": done.targets,
        "made_from": dict(key),
        "versions": versions(),
    }
    return json.dumps(content, indent=1, ensure_ascii=False).encode()


def _kept(
    slides: Sequence[SlideFeatures], model: SlideModel, project: Project, key: Mapping[str, Any]
) -> UnitPrediction | None:
    """Finished results of all slides with the same key; None if any is missing, damaged or of another key."""
    for slide in slides:
        store = project.store_path(slide.slide_id)
        try:
            made_from = read_attention(store, model.model_id).attributes.get("made_from")
        except (UnreadableError, WrongSlideError):
            return None
        stated = {name: made_from.get(name) for name in key} if isinstance(made_from, dict) else None
        if stated is None or not is_finished(stated, key):
            return None
    records = [read_record(project.result_dir(slide.slide_id, model.model_id)) for slide in slides]
    first = records[0]
    if first is None or any(record is None or record["made_from"] != first["made_from"] for record in records):
        return None
    return UnitPrediction(first["unit"], tuple(first["slides"]), first["targets"], int(first["tiles"]), skipped=True)
