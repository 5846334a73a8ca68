"""Quality control as a stage: one store gets scores, a verdict and its stain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.qc.check import check_quality, qc_key, stored_key
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import QualityConfig
from pipeline.store.layers.qc_scores import stored_summary
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError
from training.foundation.progress import Advance


@dataclass(frozen=True)
class QcStage(Stage):
    """Checks one slide. A slide for review still counts as done: people decide what to leave out."""

    name: ClassVar[str] = "qc"
    slide_id: str
    project: Project
    config: QualityConfig

    def key(self) -> Key:
        return qc_key(self._reader(), self.config)

    def made_from(self) -> Key | None:
        try:
            reader = self._reader()
            summary = stored_summary(reader)
            return None if summary is None else stored_key(summary, reader)
        except GemslideError:
            return None

    def outputs(self) -> tuple[Path, ...]:
        return (self.project.quality_dir(self.slide_id) / "quality.png",)

    def run(self, advance: Advance) -> StageReport:
        report = check_quality(self.slide_id, self.project, self.config, advance=advance)
        why = f" ({'; '.join(report.reasons)})" if report.reasons else ""
        outcome = SlideOutcome(
            self.slide_id,
            "skipped" if report.skipped else "done",
            message=f"{'kept' if report.skipped else 'done'}: {report.verdict}{why}",
            output=str(report.image),
            seconds=report.seconds,
        )
        return StageReport(outcome, ({"id": self.slide_id, "sha256": report.source_sha256},), (report.image,))

    def _reader(self) -> StoreReader:
        return StoreReader(self.project.store_path(self.slide_id), self.config.plane_um)
