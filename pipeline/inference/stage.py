"""Inference as a stage: one store gets one model's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from pipeline.batches.devices import Devices
from pipeline.batches.opened import Opened, identity_of
from pipeline.batches.qc_passed import check_qc
from pipeline.inference.infer import InferReport, infer_slide
from pipeline.inference.key import prediction_key, read_stored_key
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.inference.results.slide_report import BESIDE_DAMAGE, About
from pipeline.inference.results.stain_check import COLOUR_DISTANCE, NOT_KNOWN
from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import predictions_path
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError
from training.foundation.model_files import weights_file
from training.foundation.progress import Advance
from training.foundation.words.counts import counted

_OPENED: Opened[Predictor] = Opened()


def open_devices(package: Path, names: tuple[str, ...], config: InferConfig) -> Devices[Predictor]:
    """Open the devices that a model runs on; they stay open from slide to slide, until `close_devices`.

    Args:
        names: as `named_devices` returns them; "rank:1" is the second process of torchrun.

    Raises:
        UnreadableError: not a package, or damaged. BadRecipeError: devices that it cannot run on.
    """
    files = (identity_of(package / "config.json"), identity_of(weights_file(package)))
    load = partial(Predictor.load, package)
    return _OPENED.open(names, load, lambda name: run_on_of(name, config), key=(package, config, files))


def close_devices() -> None:
    """End the processes of open devices."""
    _OPENED.close()


@dataclass(frozen=True)
class InferStage(Stage):
    """Predicts one slide's tissue."""

    name: ClassVar[str] = "infer"
    slide_id: str
    package: Path
    project: Project
    config: InferConfig
    devices: tuple[str, ...] = ("cpu",)
    """As `named_devices` returns them."""
    source: Path | None = None
    """The slide file, if available."""

    @property
    def task(self) -> str:
        return f"infer {self.package.name}"

    def key(self) -> Key:
        return prediction_key(self._reader(), self._devices().network, self.config)

    def made_from(self) -> Key | None:
        try:
            return read_stored_key(self._reader(), self.package.name)
        except GemslideError:
            return None

    def outputs(self) -> tuple[Path, ...]:
        model_id, store = self.package.name, self.project.store_path(self.slide_id)
        return (predictions_path(store, model_id), self.project.result_dir(self.slide_id, model_id))

    def run(self, advance: Advance) -> StageReport:
        devices = self._devices()
        if self.config.require_qc:
            check_qc(self._reader(), section="infer")
        report = infer_slide(
            self.slide_id,
            devices.network,
            self.project,
            self.config,
            devices=devices,
            about=About(self.package, self.source),
            advance=advance,
        )
        left_out = f"; {counted(report.damaged_tiles, 'tile')} left out for touching damage"
        outcome = SlideOutcome(
            self.slide_id,
            "skipped" if report.skipped else "done",
            message=f"{'kept' if report.skipped else 'done'}: {counted(report.num_tiles, 'tile')}, "
            f"{counted(report.num_hotspots, 'hotspot')}"
            f"{left_out if report.damaged_tiles else ''}",
            output=str(report.result_dir),
            seconds=round(report.seconds.get("predict", 0.0) + report.seconds["write"], 3),
        )
        distance = report.colour_distance
        return StageReport(
            outcome,
            outputs=(report.result_dir,),
            seconds=report.seconds,
            facts={COLOUR_DISTANCE: NOT_KNOWN if distance is None else distance} | _damaged(report),
            warning="; ".join(report.warnings) or None,
        )

    def _devices(self) -> Devices[Predictor]:
        return open_devices(self.package, self.devices, self.config)

    def _reader(self) -> StoreReader:
        return StoreReader(self.project.store_path(self.slide_id), self.config.plane_um)


def _damaged(report: InferReport) -> dict[str, int]:
    return {BESIDE_DAMAGE: report.damaged_tiles} if report.damaged_tiles else {}
