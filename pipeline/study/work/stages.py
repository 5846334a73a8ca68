"""From a task's name to the work: a study's stages are the verbs' own, with the settings of the frozen protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadManifestError
from pipeline.jobs.stage import Stage
from pipeline.project import Project
from pipeline.study.stages.kind import Source, Work
from pipeline.study.stages.registry import StageSettings, kind_of, output_of, settings_of
from pipeline.study.work.leases import Lease
from pipeline.study.work.patients import Patients


@dataclass(frozen=True)
class StudyStages:
    """Facts about a study that its workers need.

    Attributes:
        sources: by slide id.
        packages: folder of each model, by its id.
        encoders: row of each encoder, by its id.
        settings: the study's protocol.
        patients: by its manifest.
    """

    project: Project
    sources: Mapping[str, Source]
    packages: Mapping[str, Path]
    encoders: Mapping[str, Path]
    settings: StageSettings
    patients: Patients
    devices: tuple[str, ...] = ("cpu",)

    def stage_of(self, lease: Lease) -> Stage:
        """The work that a task stands for.

        Raises:
            BadManifestError: the slide is not in the manifest.
        """
        if lease.slide_id not in self.sources:
            raise BadManifestError(f"slide {lease.slide_id}: is in the ledger, and not in the study's manifest.")
        kind = kind_of(lease.stage)
        output = output_of(self.project, lease.slide_id, lease.stage)
        section = settings_of(self.settings, kind)
        source = self.sources[lease.slide_id]
        unit = self.patients.unit(lease.slide_id, lease.stage)
        return kind.stage(Work(output, source, section, self.packages, self.encoders, self.devices, *unit))
