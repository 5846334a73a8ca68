"""Ingest as a stage: one slide file into one store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipeline.ingest.ingest import IngestReport, IngestRequest, check_same_source, ingest_key, ingest_slide, stored_key
from pipeline.ingest.linked import ingest_linked
from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.project import Project
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import IngestConfig
from pipeline.store.format.layout import TISSUE
from training.foundation.progress import Advance
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class IngestStage(Stage):
    """Turns one slide into a store."""

    name: ClassVar[str] = "ingest"
    request: IngestRequest
    project: Project
    config: IngestConfig
    link: bool = False
    """Whether the store points at the slide's tiles instead of holding copies."""
    fill: bool = True
    """Whether a store that points at them is made full."""

    @property
    def slide_id(self) -> str:  # type: ignore[override]
        return self.request.slide_id

    def key(self) -> Key:
        return ingest_key(self.request, self.config)

    def made_from(self) -> Key | None:
        return stored_key(self.project.store_path(self.slide_id))

    def outputs(self) -> tuple[Path, ...]:
        store = self.project.store_path(self.slide_id)
        return store, store / TISSUE / "zarr.json"

    def run(self, advance: Advance) -> StageReport:
        if self.link:
            return _report(ingest_linked(self.request, self.project, self.config, advance=advance))
        return _report(ingest_slide(self.request, self.project, self.config, fill=self.fill, advance=advance))

    def crashed(self, how: str) -> str:
        return (
            f"slide {self.slide_id}: the process that read {self.request.path.name} {how}. "
            "If memory ran out, use fewer --workers; otherwise the file is damaged: try it alone."
        )


@dataclass(frozen=True)
class IngestIfMissing(IngestStage):
    """Ingest where a slide's store is needed, whatever settings it was ingested with."""

    replaces: ClassVar[bool] = False

    def run(self, advance: Advance) -> StageReport:
        store = self.project.store_path(self.slide_id)
        if not store.exists():
            return super().run(advance)
        start = time.perf_counter()
        sha256 = check_same_source(self.request, store)
        seconds = round(time.perf_counter() - start, 3)
        outcome = SlideOutcome(self.slide_id, "skipped", message="kept", output=str(store), seconds=seconds)
        return StageReport(outcome, ({"id": self.slide_id, "sha256": sha256},), (store,))


OTHER_MASK = " (not made with the settings of [ingest.tissue]: `gemslide tissue` rebuilds the mask)"


def _report(report: IngestReport) -> StageReport:
    routes = ", ".join(f"{level.path} {level.route}" for level in report.levels)
    what = "done" if not report.skipped else "kept, its missing tissue mask was rebuilt" if report.mask_made else "kept"
    outcome = SlideOutcome(
        report.slide_id,
        "skipped" if report.skipped and not report.mask_made else "done",
        message=f"{what}: levels {routes}; tissue {report.tissue_fraction:.1%}"
        + (OTHER_MASK if report.other_mask else ""),
        output=str(report.store),
        seconds=report.seconds,
    )
    tiles, total = report.damaged or (0, 0)
    of_all = f"of {counted(total, 'tile')}"
    warnings = [f"{counted(tiles, f'{of_all} is', f'{of_all} are')} damaged, and masked"] if tiles else []
    warnings += report.warnings
    return StageReport(
        outcome,
        ({"id": report.slide_id, "sha256": report.sha256},),
        (report.store,),
        facts={"damaged_tiles": tiles} if report.damaged else {},
        warning="; ".join(warnings) or None,
    )
