"""Inference as a stage: one store gets one model's predictions."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from pipeline.errors import QcFailedError
from pipeline.inference.devices import Devices, ManyDevices, OneDevice
from pipeline.inference.infer import InferReport, infer_slide
from pipeline.inference.key import prediction_key, read_stored_key
from pipeline.inference.predictor import OTHER_RANK, Predictor, RunOn, connection_to, run_on_of
from pipeline.inference.results.slide_report import BESIDE_DAMAGE, About
from pipeline.inference.results.stain_check import COLOUR_DISTANCE, NOT_KNOWN
from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import InferConfig
from pipeline.store.layers.labels import mask_fingerprint
from pipeline.store.layers.overlays import predictions_path
from pipeline.store.layers.qc_scores import stored_summary
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError
from training.foundation.model_files import weights_file
from training.foundation.progress import Advance
from training.foundation.words.counts import counted


def load_once(package: Path, run_on: RunOn | None = None) -> Predictor:
    """Load a model, which stays open from slide to slide until its package changes.

    Raises:
        UnreadableError: not a package, or damaged. BadRecipeError: devices that it cannot run on.
    """
    return _load(package, run_on, (_identity(package / "config.json"), _identity(weights_file(package))))


@lru_cache(maxsize=1)
def _load(package: Path, run_on: RunOn | None, _: object) -> Predictor:
    return Predictor.load(package, run_on)


_OPEN: dict[tuple[object, ...], Devices] = {}
_OPENING = threading.Lock()


def open_devices(package: Path, names: tuple[str, ...], config: InferConfig) -> Devices:
    """Open the devices that a model runs on; they stay open from slide to slide, until `close_devices`.

    Args:
        names: as `named_devices` returns them; "rank:1" is the second process of torchrun.

    Raises:
        UnreadableError: not a package, or damaged. BadRecipeError: devices that it cannot run on.
    """
    key = (package, names, config)
    with _OPENING:
        if key not in _OPEN:
            _close()
            _OPEN[key] = _opened(package, names, config)
        return _OPEN[key]


def _opened(package: Path, names: tuple[str, ...], config: InferConfig) -> Devices:
    here = tuple(run_on_of(name, config) for name in names if not name.startswith(OTHER_RANK))
    others = [name for name in names if name.startswith(OTHER_RANK)]
    if len(here) == 1 and not others:
        return OneDevice(load_once(package, here[0]))
    return ManyDevices(package, here, [connection_to(name, is_caller=True) for name in others])


def close_devices() -> None:
    """End the processes of open devices."""
    with _OPENING:
        _close()


def _close() -> None:
    for devices in _OPEN.values():
        if isinstance(devices, ManyDevices):
            devices.end()
    _OPEN.clear()


def _identity(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:  # reported when it is loaded
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


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
        return prediction_key(self._reader(), self._devices().predictor, self.config)

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
            check_qc(self._reader())
        report = infer_slide(
            self.slide_id,
            devices.predictor,
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

    def _devices(self) -> Devices:
        return open_devices(self.package, self.devices, self.config)

    def _reader(self) -> StoreReader:
        return StoreReader(self.project.store_path(self.slide_id))


def _damaged(report: InferReport) -> dict[str, int]:
    return {BESIDE_DAMAGE: report.damaged_tiles} if report.damaged_tiles else {}


def check_qc(reader: StoreReader) -> None:
    """Refuse a slide that has not passed quality control.

    Raises:
        QcFailedError: it is for review, or was never checked.
    """
    summary = stored_summary(reader)
    if summary is None:
        raise QcFailedError(
            f"slide {reader.slide_id}: was never checked, but [infer] require_qc is set. Run `gemslide qc` first."
        )
    if summary["made_from"].get("mask") not in (None, mask_fingerprint(reader.path)):
        raise QcFailedError(
            f"slide {reader.slide_id}: was checked before its tissue mask was replaced, but [infer] require_qc is "
            "set. Run `gemslide qc` again."
        )
    if summary["verdict"] != "ok":
        raise QcFailedError(
            f"slide {reader.slide_id}: quality control says {summary['verdict']} ({'; '.join(summary['reasons'])}). "
            "Look at it; to predict it anyway, set [infer] require_qc = false."
        )
