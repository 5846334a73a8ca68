"""Two stages on one slide, one after the other: the requested stage, after one that it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.naming.slides import SlideToDo
from pipeline.project import Project
from pipeline.settings.config import Settings
from training.foundation.progress import Advance


@dataclass(frozen=True)
class Chain(Stage):
    """The second stage, after the first."""

    first: Stage
    second: Stage

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.second.name

    @property
    def slide_id(self) -> str:  # type: ignore[override]
        return self.second.slide_id

    @property
    def replaces(self) -> bool:  # type: ignore[override]
        return self.second.replaces

    @property
    def task(self) -> str:
        return self.second.task

    def key(self) -> Key:
        return self.second.key()

    def made_from(self) -> Key | None:
        return self.second.made_from()

    def outputs(self) -> tuple[Path, ...]:
        return (*self.first.outputs(), *self.second.outputs())

    def run(self, advance: Advance) -> StageReport:
        before = self.first.run(advance)
        report = self.second.run(advance)
        return replace(
            report,
            inputs=(*before.inputs, *report.inputs),
            outputs=(*before.outputs, *report.outputs),
            seconds={self.first.name: before.outcome.seconds, **report.seconds},
            facts={**before.facts, **report.facts},
            warning="; ".join(warning for warning in (before.warning, report.warning) if warning) or None,
        )

    def crashed(self, how: str) -> str:
        return self.first.crashed(how)


def after_ingest(slide: SlideToDo, stage: Stage, project: Project, settings: Settings) -> Stage:
    """The stage, after the slide's ingest where it has a file."""
    from pipeline.ingest.ingest import IngestRequest
    from pipeline.ingest.stage import IngestIfMissing

    if slide.path is None:
        return stage
    request = IngestRequest(slide.path, slide.slide_id, slide.manifest_mpp, series=slide.series)
    return Chain(IngestIfMissing(request, project, settings.ingest), stage)
