"""From a task's name to the work: a study's stages are the verbs' own, with the settings of the frozen protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.cohort.manifest import Cohort
from pipeline.config import InferConfig, IngestConfig, QualityConfig
from pipeline.errors import BadManifestError
from pipeline.inference.stage import InferStage
from pipeline.ingest.ingest import IngestRequest
from pipeline.ingest.stage import IngestStage
from pipeline.jobs.stage import Stage
from pipeline.project import Project
from pipeline.qc.stage import QcStage
from pipeline.study.leases import Lease

INFER = "infer "


class Source(NamedTuple):
    """Where a slide comes from."""

    path: Path
    mpp: float | None
    """The manifest's, where it has one."""


@dataclass(frozen=True)
class StudyStages:
    """What a study's workers need to know of it."""

    project: Project
    sources: Mapping[str, Source]
    """By slide id."""
    packages: dict[str, Path]
    """Folder of each model, by its id."""
    ingest: IngestConfig
    qc: QualityConfig
    infer: InferConfig
    devices: tuple[str, ...] = ("cpu",)

    def stage_of(self, lease: Lease) -> Stage:
        """The work that a task stands for.

        Raises:
            BadManifestError: the slide is not in the manifest.
        """
        if lease.slide_id not in self.sources:
            raise BadManifestError(f"slide {lease.slide_id}: is in the ledger, and not in the study's manifest.")
        source = self.sources[lease.slide_id]
        if lease.stage == "ingest":
            return IngestStage(IngestRequest(source.path, lease.slide_id, source.mpp), self.project, self.ingest)
        if lease.stage == "qc":
            return QcStage(lease.slide_id, self.project, self.qc)
        package = self.packages[lease.stage.removeprefix(INFER)]
        return InferStage(lease.slide_id, package, self.project, self.infer, self.devices, source.path)


def sources_of(cohort: Cohort) -> dict[str, Source]:
    """The slide files of a cohort, by slide id."""
    return {entry.slide_id: Source(cohort.slide_path(entry), entry.mpp) for entry in cohort.included}
