"""Inference of a slide-level model as a stage: one patient or slide gets one model's predictions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pipeline.batches.devices import named_devices
from pipeline.batches.qc_passed import check_qc
from pipeline.embedding.encoder import TileEncoder
from pipeline.errors import WrongSlideError
from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.run_record import SlideOutcome
from pipeline.slide_level.model import SlideModel
from pipeline.slide_level.predict import UnitPrediction, predict_unit, unit_key
from pipeline.slide_level.stored_bags import SlideFeatures, open_slide_features
from pipeline.store.layers.attention import attention_path, read_attention
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import BadRecipeError, GemslideError, UnreadableError
from training.foundation.progress import Advance
from training.foundation.words.counts import counted


@lru_cache(maxsize=1)
def load_model(package: Path, device: str) -> SlideModel:
    """Open a slide-level model; it stays open from patient to patient. Raises as `SlideModel.load`."""
    return SlideModel.load(package, device)


def only_device(typed: str) -> str:
    """The device that `--devices` names for a slide-level model. Raises BadRecipeError: there are several, or none."""
    names = named_devices(typed)
    if len(names) > 1 or "+" in names[0]:
        raise BadRecipeError(f"--devices {typed}: a slide-level model runs on one device.")
    return names[0]


def open_unit(slide_ids: Sequence[str], model: SlideModel, project: Project) -> list[SlideFeatures]:
    """Open the features of a unit's slides, in the order of their ids.

    Raises:
        UnreadableError: a slide has none of the model's encoder, or damaged ones. WrongSlideError: no slides.
    """
    encoder_id = model.config.encoder.encoder_id
    found = []
    for slide_id in sorted(slide_ids):
        slide = open_slide_features(project, slide_id, encoder_id)
        if slide is None:
            raise UnreadableError(
                f"slide {slide_id}: has no features of encoder {encoder_id}, which model {model.model_id} "
                "takes. Add the encoder to the project (`gemslide encoder add`) and run `gemslide embed`, or "
                "import its features."
            )
        found.append(slide)
    if not found:
        raise WrongSlideError(f"model {model.model_id}: there are no slides to predict.")
    return found


def check_opened(encoder: TileEncoder, row_path: Path, encoder_id: str) -> None:
    """Refuse an encoder of a project that is no longer the one that a model was trained with."""
    if encoder.encoder_id != encoder_id:
        raise BadRecipeError(
            f"{row_path}: is encoder {encoder.encoder_id}, but the model was trained on features of {encoder_id}: its "
            "row or weights have changed. Restore them, or train again."
        )


@dataclass(frozen=True)
class PredictUnit(Stage):
    """Predicts one patient or slide from the features of its slides."""

    name: ClassVar[str] = "infer"
    slide_id: str
    """Id of the slide, or of the patient."""
    slide_ids: tuple[str, ...]
    package: Path
    project: Project
    device: str = "cpu"
    require_qc: bool = False
    """Whether every slide must have passed quality control."""

    @property
    def task(self) -> str:
        return f"predict {self.package.name}"

    @property
    def slides(self) -> tuple[str, ...]:
        return self.slide_ids

    def key(self) -> Key:
        return unit_key(self.slide_id, self._slides(), self._model())

    def made_from(self) -> Key | None:
        try:
            stored = read_attention(self.project.store_path(self.slide_ids[0]), self.package.name)
        except GemslideError:
            return None
        made_from = stored.attributes.get("made_from")
        return {k: v for k, v in made_from.items() if k != "source_sha256"} if isinstance(made_from, dict) else None

    def outputs(self) -> tuple[Path, ...]:
        stores = (self.project.store_path(slide_id) for slide_id in self.slide_ids)
        results = (self.project.result_dir(slide_id, self.package.name) for slide_id in self.slide_ids)
        return (*(attention_path(store, self.package.name) for store in stores), *results)

    def run(self, advance: Advance) -> StageReport:
        start = time.perf_counter()
        for slide_id in self.slide_ids if self.require_qc else ():
            check_qc(StoreReader(self.project.store_path(slide_id)), section="infer")
        done = predict_unit(self.slide_id, self._slides(), self._model(), self.project)
        outcome = SlideOutcome(
            self.slide_id,
            "skipped" if done.skipped else "done",
            message=f"{'kept' if done.skipped else 'done'}: {say(done)}",
            output=str(self.project.result_dir(self.slide_ids[0], self.package.name)),
            seconds=round(time.perf_counter() - start, 3),
        )
        return StageReport(outcome, outputs=self.outputs(), facts={"targets": done.targets})

    def _model(self) -> SlideModel:
        return load_model(self.package, self.device)

    def _slides(self) -> list[SlideFeatures]:
        return open_unit(self.slide_ids, self._model(), self.project)


def say(done: UnitPrediction) -> str:
    """A unit's predictions in a clause for people."""
    said = [f"{name}: {_said(target)}" for name, target in done.targets.items()]
    slides = f" of {counted(len(done.slides), 'slide')}" if len(done.slides) > 1 else ""
    return f"{counted(done.num_tiles, 'tile')}{slides}; {'; '.join(said)}"


def _said(target: dict[str, Any]) -> str:
    if target["kind"] in ("class", "ordinal"):
        return f"{target['answer']} ({max(target['values']):.2f})"
    if target["kind"] == "number":
        return f"{target['answer']:g}"
    return f"risk {target['answer']:.3g}" + (f", {target['group']}" if "group" in target else "")
