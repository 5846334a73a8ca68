"""A study of a project: begun, opened by whoever works on it, and worked on by one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.duplicates import refuse_changes
from pipeline.cohort.look_alikes import look_alike_patients
from pipeline.cohort.manifest import Cohort
from pipeline.errors import BadManifestError, IncompletePatientError
from pipeline.jobs.stage import Stage
from pipeline.ledger.chain import canonical
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.naming.sources import SourceNames
from pipeline.project import Project
from pipeline.study.leakage import check_leakage
from pipeline.study.protocol import (
    PROTOCOL_FILE,
    Protocol,
    find_models,
    frozen_protocol,
    load_protocol,
    load_study_cohort,
    study_dir,
)
from pipeline.study.references import references_of_cohort
from pipeline.study.slide_models import check_slide_models
from pipeline.study.stages.encoders import find_encoders
from pipeline.study.stages.kind import sources_of
from pipeline.study.stages.registry import kind_of, output_sha256, results_of_stage, settings_of
from pipeline.study.work.leases import Ended, Lease, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.origin import Origin, write_origin
from pipeline.study.work.owner import this_process
from pipeline.study.work.patients import Patients, ended_before
from pipeline.study.work.relied_on import ReliedOn, relying_studies, relying_study
from pipeline.study.work.retry import wait_for_ledger
from pipeline.study.work.shutdown import ShutdownRequest
from pipeline.study.work.stages import StudyStages
from pipeline.study.work.worker import Output, Worker
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class Study:
    """A study that has begun."""

    project: Project
    study_id: str
    ledger: Ledger
    protocol: Protocol
    manifest_sha256: str
    version: int = 1
    """Of the protocol; each amendment counts one."""

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
        warn: called with each sentence of `doubts`.

    Raises:
        BadManifestError: has begun already; a manifest that does not hold together, or names one file twice.
        BadRecipeError: a bad protocol, or one that does not fit a slide-level model.
        UnreadableError: a model or an encoder that is not there. ChangedSourceError: one with other weights than the
            protocol's.
        LeakageError: a patient or slide that a model was trained on.
    """
    folder = study_dir(project, study_id)
    protocol = load_protocol(folder / PROTOCOL_FILE)
    cohort, sha256 = load_study_cohort(protocol, folder)
    refuse_changes(cohort, project)
    for said in doubts(protocol, cohort, project):
        warn(said)
    ledger.begin(study_id, protocol.frozen(), sha256, slides_of(cohort), protocol.stages, actor=actor)
    return Study(project, study_id, ledger, protocol, sha256)


def doubts(protocol: Protocol, cohort: Cohort, project: Project) -> list[str]:
    """Sentences on what could not be compared, or looks wrong: training data of a model that are elsewhere or name no
    patients, classes that no slide has by its label, and patients that look like one.

    Raises:
        BadRecipeError, UnreadableError, ChangedSourceError, LeakageError: as `begin_study`.
    """
    packages = find_models(protocol, project)
    find_encoders(protocol.encoders, project)
    of_tiles = {model.id: packages[model.id] for model in protocol.models if model.level == "tile"}
    unknown = [*check_leakage(cohort, of_tiles, project), *check_slide_models(protocol, cohort, packages)]
    unmatched = references_of_cohort(protocol, cohort, packages.values()).warnings
    return [*unknown, *unmatched, *map(str, look_alike_patients(cohort.included).values())]


def slides_of(cohort: Cohort) -> list[NewSlide]:
    """A cohort's slides as they enter a study, also those that are excluded: reasons go into the ledger and the report,
    without the names of the cohort's files."""
    names = names_of_sources(cohort)
    return [
        NewSlide(entry.slide_id, entry.site, entry.scanner, names.cleaned(entry.exclude) if entry.exclude else None)
        for entry in cohort.entries
    ]


def names_of_sources(cohort: Cohort, project: Project | None = None) -> SourceNames:
    """The names of all files that a cohort's manifest names; its slide ids are none."""
    annotations = [path for entry in cohort.entries if (path := cohort.annotations_path(entry)) is not None]
    files = [*(cohort.slide_path(entry) for entry in cohort.entries), *annotations]
    names = SourceNames(*files, project=project)
    for entry in cohort.entries:
        names.keep(entry.slide_id)
    return names


def cleaned_reason(project: Project, study_id: str, ledger: Ledger, why: str) -> str:
    """A reason as the log may keep it: without the names of the files of the study's manifest.

    A study or a manifest that cannot be read names none: whatever uses it says so.
    """
    with suppress(GemslideError):
        study = begun_study(project, study_id, ledger)
        cohort, _ = load_study_cohort(study.protocol, study.folder)
        return names_of_sources(cohort, project).cleaned(why)
    return why


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
    """A study as the ledger has it, whatever stands in its folder.

    Raises:
        BadManifestError: it has not begun. DamagedStoreError: its frozen protocol was changed behind the log's back.
    """
    row = ledger.study(study_id)
    return Study(project, study_id, ledger, frozen_protocol(row.frozen(), study_id), row.manifest_sha256, row.version)


@dataclass(frozen=True)
class _Work:
    """Work of a study's worker on a task."""

    stages: StudyStages
    origin: Origin
    ledger: Ledger
    names: SourceNames
    """Of every slide: a message may name another one's file."""

    def stage_of(self, lease: Lease) -> Stage:
        """The study's own earlier output is replaced where an amendment asks for that; another study's never is."""
        self._check_complete(lease)
        stage = self.stages.stage_of(lease)
        others = relying_studies(self.ledger, stage.slides, but=(lease.study_id,))
        other = relying_study(stage.slides, lease.stage, others)
        if other is None:
            return stage
        theirs, kind = begun_study(self.stages.project, other, self.ledger).protocol, kind_of(lease.stage)
        differ = settings_of(theirs, kind) != settings_of(self.stages.settings, kind)
        return ReliedOn(stage, other, other_settings=differ)

    def _check_complete(self, lease: Lease) -> None:
        """Refuse to predict a patient of whom a slide has ended without a result. Its id stays out of the message,
        which would outlast the slide's erasure."""
        slides = self.stages.patients.unit(lease.slide_id, lease.stage).slides
        if len(slides) == 1:
            return
        with self.ledger.database.read() as connection:
            missing = ended_before(connection, lease.study_id, slides, lease.position)
        if missing:
            have = counted(missing, "other slide of its patient has", "other slides of its patient have")
            raise IncompletePatientError(
                f"slide {lease.slide_id}: {have} ended without a result, and {lease.stage.partition(' ')[2]} predicts "
                "patients from all of their slides. The manifest's column `patient_id` says which. Retry what ended, "
                "or exclude it with a reason and record that with `gemslide study amend`; then retry this slide."
            )

    def output_of(self, lease: Lease) -> Output:
        project = self.stages.project
        sha256 = output_sha256(project, lease.slide_id, lease.stage)
        write_origin(project, lease.slide_id, lease.stage, self.origin, sha256)
        return Output(sha256, canonical(results_of_stage(project, lease.slide_id, lease.stage)))

    def cleaned(self, lease: Lease, message: str) -> str:
        self.names.keep(lease.slide_id)
        return self.names.cleaned(message)


def stages_of(study: Study, devices: tuple[str, ...] = ("cpu",)) -> StudyStages:
    """Stages that a study's tasks stand for.

    Raises:
        BadManifestError, ChangedSourceError: the manifest, a model or an encoder has changed. UnreadableError: it is
            missing.
    """
    protocol = study.protocol
    cohort, _ = load_study_cohort(protocol, study.folder, expected_sha256=study.manifest_sha256)
    packages, encoders = find_models(protocol, study.project), find_encoders(protocol.encoders, study.project)
    patients = Patients.of(protocol, cohort, study.version)
    return StudyStages(study.project, sources_of(cohort), packages, encoders, protocol, patients, devices)


def origin_of(study: Study) -> Origin:
    """Origin that every result of a study states."""
    row = study.ledger.study(study.study_id)
    return Origin(study.study_id, row.version, row.protocol_sha256, row.manifest_sha256)


def work_on(
    study: Study,
    *,
    devices: tuple[str, ...] = ("cpu",),
    said: Callable[[Lease, Ended], None] = lambda lease, ended: None,
    tell: Callable[[str], None] = lambda why: None,
    ending: ShutdownRequest | None = None,
) -> int:
    """Be one of the study's workers until every slide has ended, or the study is paused. Returns the tasks done.

    After an amendment the worker goes on by the study's new protocol and manifest.

    Args:
        tell: called with what is waited for, where the ledger cannot be reached or written.
        ending: whether this worker was asked to end.

    Raises:
        BadManifestError, ChangedSourceError: the manifest, a model or an encoder is not what it was. UnreadableError:
            not there.
        LedgerReadOnlyError: the ledger may not be written.
        KeyboardInterrupt: it was asked to end, and its task is given back.
    """
    done, version = 0, None
    now = study
    while now.version != version:
        if version is not None:
            tell(f"study {study.study_id}: was amended; going on by version {now.version} of its protocol.")
        version = now.version
        done += _work_on_version(now, devices, said, tell, ending)
        now = wait_for_ledger(lambda: begun_study(study.project, study.study_id, study.ledger), warn=tell)
    return done


def _work_on_version(
    study: Study,
    devices: tuple[str, ...],
    said: Callable[[Lease, Ended], None],
    tell: Callable[[str], None],
    ending: ShutdownRequest | None,
) -> int:
    """As `work_on`, until the study is amended."""
    stages = stages_of(study, devices)
    owner = this_process()
    actor = f"worker {owner.host} {owner.pid}"
    leases = Leases(study.ledger, owner, study.limits, actor=actor, patients=stages.patients)

    def is_over() -> bool:
        row = study.ledger.study(study.study_id)
        return (row.state, row.version) != ("running", study.version) or study.ledger.counts(study.study_id).is_over

    origin = wait_for_ledger(lambda: origin_of(study), warn=tell)
    cohort, _ = load_study_cohort(study.protocol, study.folder)
    work = _Work(stages, origin, study.ledger, names_of_sources(cohort, study.project))
    worker = Worker(leases, study.limits, work, said=said, tell=tell, ending=ending)
    return worker.run(study.study_id, until=is_over)
