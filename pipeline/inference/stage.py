"""Inference as a stage: one store gets one model's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from pipeline.config import InferConfig
from pipeline.errors import GemslideError
from pipeline.inference.infer import infer_slide
from pipeline.inference.key import prediction_key, read_stored_key
from pipeline.inference.predictor import Predictor
from pipeline.inference.stain_check import COLOUR_DISTANCE, NOT_KNOWN, warning_of
from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.progress import Advance
from pipeline.project import Project
from pipeline.run_record import SlideOutcome
from pipeline.store.overlays import predictions_path
from pipeline.store.reader import StoreReader


def load_once(package: Path) -> Predictor:
    """A model stays open from slide to slide, until its package is another.

    Raises:
        UnreadableError: not a package, or damaged.
    """
    return _load(package, tuple(_identity(package / name) for name in ("config.json", "model.safetensors")))


@lru_cache(maxsize=1)
def _load(package: Path, _: object) -> Predictor:
    return Predictor.load(package)


def _identity(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:  # said when it is loaded
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True)
class InferStage(Stage):
    """Predicts one slide's tissue."""

    name: ClassVar[str] = "infer"
    slide_id: str
    package: Path
    project: Project
    config: InferConfig

    def key(self) -> Key:
        return prediction_key(self._reader(), load_once(self.package), self.config)

    def made_from(self) -> Key | None:
        try:
            return read_stored_key(self._reader(), load_once(self.package).model_id)
        except GemslideError:
            return None

    def outputs(self) -> tuple[Path, ...]:
        model_id, store = load_once(self.package).model_id, self.project.store_path(self.slide_id)
        return (predictions_path(store, model_id), self.project.result_dir(self.slide_id, model_id))

    def run(self, advance: Advance) -> StageReport:
        predictor = load_once(self.package)
        report = infer_slide(self.slide_id, predictor, self.project, self.config, advance=advance)
        outcome = SlideOutcome(
            self.slide_id,
            "skipped" if report.skipped else "done",
            message=f"{'kept' if report.skipped else 'done'}: {report.num_tiles} tiles, {report.num_hotspots} hotspots",
            output=str(report.result_dir),
            seconds=round(sum(report.seconds.values()), 3),
        )
        distance = report.colour_distance
        return StageReport(
            outcome,
            outputs=(report.result_dir,),
            seconds=report.seconds,
            facts={COLOUR_DISTANCE: NOT_KNOWN if distance is None else distance},
            warning=warning_of(distance),
        )

    def _reader(self) -> StoreReader:
        return StoreReader(self.project.store_path(self.slide_id))
