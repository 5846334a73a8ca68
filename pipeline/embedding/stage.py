"""Embedding as a stage: one store gets one encoder's features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from pipeline.batches.devices import Devices
from pipeline.batches.opened import Opened, identity_of
from pipeline.batches.qc_passed import check_qc
from pipeline.batches.where import Numerics, RunOn
from pipeline.embedding.embed import DAMAGED_TILES, embed_slide
from pipeline.embedding.encoder import TileEncoder
from pipeline.embedding.key import embedding_key, stored_key
from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import EmbedConfig
from pipeline.store.layers.features import features_path
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError
from training.foundation.progress import Advance
from training.foundation.words.counts import counted

_OPENED: Opened[TileEncoder] = Opened()


def encoder_run_on(device: str, config: EmbedConfig) -> RunOn:
    """Device and numerics of an encoder's run, from the settings; its row says the precision."""
    return RunOn(device, Numerics(deterministic=config.deterministic))


def open_encoder(row_path: Path, names: tuple[str, ...], config: EmbedConfig) -> Devices[TileEncoder]:
    """Open the devices that an encoder runs on; they stay open from slide to slide, until `close_encoder`.

    Args:
        names: as `named_devices` returns them.

    Raises:
        UnreadableError: its weights are missing, damaged or others. BadRecipeError: a row or devices that do not fit.
    """
    load = partial(TileEncoder.load, row_path)
    key = (row_path, config, identity_of(row_path))
    return _OPENED.open(names, load, lambda name: encoder_run_on(name, config), key=key)


def close_encoder() -> None:
    """End the processes of open devices."""
    _OPENED.close()


@dataclass(frozen=True)
class EmbedStage(Stage):
    """Embeds one slide's tissue."""

    name: ClassVar[str] = "embed"
    slide_id: str
    row_path: Path
    """The encoder's row: encoders/NAME.toml."""
    project: Project
    config: EmbedConfig
    devices: tuple[str, ...] = ("cpu",)
    """As `named_devices` returns them."""

    @property
    def task(self) -> str:
        return f"embed {self.row_path.stem}"

    def key(self) -> Key:
        return embedding_key(self._reader(), self._devices().network, self.config)

    def made_from(self) -> Key | None:
        try:
            return stored_key(self._reader(), self._devices().network.encoder_id)
        except GemslideError:
            return None

    def outputs(self) -> tuple[Path, ...]:
        return (features_path(self.project.store_path(self.slide_id), self._devices().network.encoder_id),)

    def run(self, advance: Advance) -> StageReport:
        devices = self._devices()
        if self.config.require_qc:
            check_qc(self._reader(), section="embed")
        report = embed_slide(
            self.slide_id, devices.network, self.project, self.config, devices=devices, advance=advance
        )
        left_out = f"; {counted(report.damaged_tiles, 'tile')} left out for touching damage"
        outcome = SlideOutcome(
            self.slide_id,
            "skipped" if report.skipped else "done",
            message=f"{'kept' if report.skipped else 'done'}: {counted(report.num_tiles, 'tile')}, "
            f"{counted(report.dims, 'feature')} each{left_out if report.damaged_tiles else ''}",
            output=str(self.outputs()[0]),
            seconds=round(report.seconds.get("predict", 0.0) + report.seconds.get("write", 0.0), 3),
        )
        return StageReport(
            outcome,
            outputs=self.outputs(),
            seconds=report.seconds,
            facts={DAMAGED_TILES: report.damaged_tiles} if report.damaged_tiles else {},
        )

    def _devices(self) -> Devices[TileEncoder]:
        return open_encoder(self.row_path, self.devices, self.config)

    def _reader(self) -> StoreReader:
        return StoreReader(self.project.store_path(self.slide_id), self.config.plane_um)
