"""A study of a project: begun, opened by whoever works on it, and worked on by one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.manifest import Cohort
from pipeline.errors import BadManifestError
from pipeline.jobs.stage import Stage
from pipeline.project import Project
from pipeline.study.chain import canonical
from pipeline.study.content import output_sha256
from pipeline.study.ending import Ending
from pipeline.study.leakage import check_leakage
from pipeline.study.leases import Ended, Lease, Leases
from pipeline.study.ledger import Ledger, NewSlide
from pipeline.study.limits import Limits
from pipeline.study.measures import measures_of
from pipeline.study.origin import Origin, write_origin
from pipeline.study.owner import this_process
from pipeline.study.patience import patiently
from pipeline.study.protocol import (
    PROTOCOL_FILE,
    Protocol,
    find_models,
    frozen_protocol,
    load_protocol,
    load_study_cohort,
    study_dir,
)
from pipeline.study.stages import StudyStages, sources_of
from pipeline.study.worker import Output, Worker


@dataclass(frozen=True)
class Study:
    """A study that has begun."""

    project: Project
    study_id: str
    ledger: Ledger
    protocol: Protocol
    manifest_sha256: str

    @property
    def folder(self) -> Path:
        return study_dir(self.project, self.study_id)

    @property
    def limits(self) -> Limits:
        patience = self.protocol.patience
        return Limits(patience.lease_s, patience.max_attempts, patience.backoff_s)


def begin_study(
    project: Project, study_id: str, ledger: Ledger, *, actor: str, warn: Callable[[str], None] = lambda said: None
) -> Study:
    """Freeze the protocol and enter the cohort's slides; what is missing is said before anything is written.

    Args:
        warn: called with a sentence for each model whose training data nobody can compare with the cohort.

    Raises:
        BadManifestError: has begun already; a manifest that does not hold together. BadRecipeError: a bad protocol.
        UnreadableError: a model that is not there. ChangedSourceError: a model with other weights than the protocol's.
        LeakageError: a patient or slide that a model was trained on.
    """
    folder = study_dir(project, study_id)
    protocol = load_protocol(folder / PROTOCOL_FILE)
    cohort, sha256 = load_study_cohort(protocol, folder)
    for unknown in check_leakage(cohort, find_models(protocol, project), project):
        warn(unknown)
    ledger.begin(study_id, protocol.frozen(), sha256, slides_of(cohort), protocol.stages, actor=actor)
    return Study(project, study_id, ledger, protocol, sha256)


def slides_of(cohort: Cohort) -> list[NewSlide]:
    """A cohort's slides as they enter a study, also those that are excluded."""
    return [NewSlide(entry.slide_id, entry.site, entry.scanner, entry.exclude or None) for entry in cohort.entries]


def open_study(project: Project, study_id: str, ledger: Ledger) -> Study:
    """A study as it was frozen.

    Raises:
        BadManifestError: it has not begun, or its protocol has changed since.
    """
    found = begun_study(project, study_id, ledger)
    path = found.folder / PROTOCOL_FILE
    if path.exists() and load_protocol(path).frozen() != found.protocol.frozen():
        raise BadManifestError(
            f"{path}: is not the protocol that study {study_id} was begun with (version "
            f"{ledger.study(study_id).version}). Record the change with `gemslide study amend`, or put the earlier "
            "protocol back."
        )
    return found


def begun_study(project: Project, study_id: str, ledger: Ledger) -> Study:
    """A study as the ledger has it, whatever stands in its folder. Raises BadManifestError: it has not begun."""
    row = ledger.study(study_id)
    return Study(project, study_id, ledger, frozen_protocol(json.loads(row.protocol), study_id), row.manifest_sha256)


@dataclass(frozen=True)
class _Work:
    """What a study's worker does with a task."""

    stages: StudyStages
    origin: Origin

    def stage_of(self, lease: Lease) -> Stage:
        return self.stages.stage_of(lease)

    def output_of(self, lease: Lease) -> Output:
        project = self.stages.project
        sha256 = output_sha256(project, lease.slide_id, lease.stage)
        write_origin(project, lease.slide_id, lease.stage, self.origin, sha256)
        return Output(sha256, canonical(measures_of(project, lease.slide_id, lease.stage)))


def stages_of(study: Study, devices: tuple[str, ...] = ("cpu",)) -> StudyStages:
    """What a study's tasks stand for.

    Raises:
        BadManifestError, ChangedSourceError: the manifest or a model is not what it was. UnreadableError: not there.
    """
    protocol = study.protocol
    cohort, _ = load_study_cohort(protocol, study.folder, expected_sha256=study.manifest_sha256)
    packages = find_models(protocol, study.project)
    return StudyStages(
        study.project, sources_of(cohort), packages, protocol.ingest, protocol.qc, protocol.infer, devices
    )


def origin_of(study: Study) -> Origin:
    """What every result of a study says of where it comes from."""
    row = study.ledger.study(study.study_id)
    return Origin(study.study_id, row.version, row.protocol_sha256, row.manifest_sha256)


def work_on(
    study: Study,
    *,
    devices: tuple[str, ...] = ("cpu",),
    said: Callable[[Lease, Ended], None] = lambda lease, ended: None,
    ending: Ending | None = None,
) -> int:
    """Be one of the study's workers until every slide has ended, or the study is paused. Returns the tasks done.

    Args:
        ending: whether this worker was asked to end.

    Raises:
        BadManifestError, ChangedSourceError: the manifest or a model is not what it was. UnreadableError: not there.
        KeyboardInterrupt: it was asked to end, and its task is given back.
    """
    stages = stages_of(study, devices)
    owner = this_process()
    leases = Leases(study.ledger, owner, study.limits, actor=f"worker {owner.host} {owner.pid}")

    def is_over() -> bool:
        return study.ledger.counts(study.study_id).is_over or study.ledger.study(study.study_id).state == "paused"

    origin = patiently(lambda: origin_of(study))
    worker = Worker(leases, study.limits, _Work(stages, origin), said=said, ending=ending)
    return worker.run(study.study_id, until=is_over)
