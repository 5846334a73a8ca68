"""A study's protocol: its question, slides, models and settings, and the criteria for an answer.

`studies/<study_id>/study.toml` in the project. It is frozen when the study begins: the ledger keeps it, every result is
made with the ledger's copy, and a file that has changed since is refused until the change is amended.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.evaluation.statistics.agreement import Weights
from pipeline.evaluation.stored import SlideScore
from pipeline.files import sha256_of
from pipeline.ledger.reasons import is_blank
from pipeline.naming.models import find_package
from pipeline.project import Project, check_name
from pipeline.slide_level.package_level import Level, level_of
from pipeline.study.reading.questions import ReadingConfig
from pipeline.study.stages.encoders import StudyEncoder
from pipeline.study.stages.hashes import Sha256
from pipeline.study.stages.registry import StageSettings, model_task, tasks_of
from training.foundation.errors import BadRecipeError
from training.foundation.model_files import weights_file
from training.foundation.settings import Section, load_section, parse_section
from training.foundation.words.class_names import check_class_name, check_printable
from training.foundation.words.names import NAME_PATTERN

PROTOCOL_FILE = "study.toml"
_LATER_SECTIONS = ("reading.seen", "encoders", "embed")
"""Sections that studies begun with earlier versions may lack: nothing that they did rests on the defaults, and log
entries made by them say so."""
Line = Annotated[str, AfterValidator(check_printable), Field(max_length=2000)]


def _check_question(question: str) -> str:
    if is_blank(question):
        raise ValueError("state the question that the study is to answer, before any data are seen")
    return question


class AboutStudy(Section):
    """`[study]`"""

    title: Line
    question: Annotated[Line, AfterValidator(_check_question)]
    """Question that the study is to answer."""
    cohort: str = Field(min_length=1)
    """Manifest (CSV), relative to the protocol."""
    seed: int = Field(0, ge=0)
    """For everything drawn at random: reading order, samples, resamples."""


class StudyModel(Section):
    """`[[models]]`: one model that predicts the tiles of every slide, or every slide or patient."""

    id: str = Field(pattern=NAME_PATTERN)
    sha256: Sha256
    """Of the weights; another file of the same name is refused."""
    config_sha256: Sha256
    """Of the package's `config.json`: with other class names or spacing, the same weights mean something else."""
    level: Level = "tile"
    """What it predicts, as its package says."""

    @property
    def task(self) -> str:
        """The name of its tasks."""
        return model_task(self.id, self.level)


class Patience(Section):
    """`[patience]`: how long to wait for a worker, and how often to try."""

    lease_s: float = Field(30.0, ge=1, le=86_400)
    """A worker that is silent for longer loses its task."""
    max_attempts: int = Field(3, ge=1, le=100)
    """Of one task; then the slide is set aside."""
    backoff_s: float = Field(5.0, ge=0, le=86_400)
    """Before the second attempt; doubled before each further one, up to an hour."""


class Analysis(Section):
    """`[analysis]`: how the report's numbers are computed."""

    threshold: float = Field(0.5, gt=0, lt=1)
    """Probability at or above which a tile, slide or patient is called positive, with two classes."""
    slide_score: SlideScore = "max"
    """A slide's score for a class: its cells' highest probability, their mean, or the mean of the highest tenth."""
    bootstrap: int = Field(2000, ge=0, le=100_000)
    """Resamples of the patients for intervals; 0: exact intervals only."""
    calibration_bins: int = Field(10, ge=2, le=100)
    cost_per_hour: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of one worker; 0: the report states no costs."""
    currency: Annotated[str, AfterValidator(check_printable), Field(max_length=8)] = "EUR"


class Validation(Section):
    """`[validation]`: of digital pathology against glass slides, after the guideline of the College of American
    Pathologists (Evans et al., Arch Pathol Lab Med 146:440, 2022)."""

    question: str = Field(pattern=NAME_PATTERN)
    """Question whose answers are compared: the diagnosis."""
    min_cases: int = Field(60, ge=1)
    min_concordance: float = Field(0.95, gt=0, le=1)
    """Of each reader with themselves, glass against digital."""
    min_washout_days: float = Field(14.0, ge=0)


class Signer(Section):
    """`[[signers]]`: people who may sign reports and anchors. If nobody is named, every key may."""

    name: Line
    key_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    """As printed by `gemslide study key`."""
    may: tuple[Literal["authored", "reviewed", "approved", "anchor"], ...] = Field(min_length=1)


Measure = Literal["auc", "accuracy", "balanced_accuracy", "sensitivity", "specificity", "kappa"]


class Endpoint(Section):
    """`[[endpoints]]`: a measurement, and the expected result, stated before any data were seen."""

    name: Annotated[str, AfterValidator(check_class_name)]
    measure: Measure
    level: Literal["tile", "slide", "patient"] = "slide"
    model: str = Field(pattern=NAME_PATTERN)
    class_name: Annotated[str, AfterValidator(check_class_name)] | None = None
    """Of `auc`, `sensitivity` and `specificity`: the positive class; with two classes, if not named, the one that
    evaluation takes as positive (docs/reference/evaluation.md)."""
    target: Line | None = None
    """Of a slide-level model that predicts several: which."""
    tile_set: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None
    """Of level `tile`: the tile set whose labels are the reference."""
    weights: Weights | None = None
    """Of `kappa`, where the model's classes are grades in ascending order: by how far apart two grades are."""
    at_least: float | None = Field(None, ge=-1, le=1)
    """The hypothesis: the lower end of the 95 % interval is at least this."""
    kind: Literal["primary", "secondary"] = "secondary"

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        if (self.level == "tile") != (self.tile_set is not None):
            raise ValueError(f"endpoint {self.name}: `tile_set` belongs to level tile, and level tile needs it")
        if self.weights is not None and self.measure != "kappa":
            raise ValueError(f"endpoint {self.name}: `weights` belong to the measure kappa")
        return self


class Protocol(StageSettings):
    """All of `study.toml`, with a section for each stage. `require_qc = true` in `[infer]` or `[embed]` ends
    slides that did not pass quality control as qc_failed."""

    study: AboutStudy
    models: tuple[StudyModel, ...] = Field(min_length=1, max_length=100)
    encoders: tuple[StudyEncoder, ...] = Field((), max_length=100)
    patience: Patience = Patience()
    endpoints: tuple[Endpoint, ...] = ()
    analysis: Analysis = Analysis()
    signers: tuple[Signer, ...] = ()
    reading: ReadingConfig | None = None
    validation: Validation | None = None

    @model_validator(mode="after")
    def names_fit(self) -> Self:
        ids = [model.id for model in self.models]
        for section, named in (("models", ids), ("encoders", [encoder.id for encoder in self.encoders])):
            if twice := sorted({name for name in named if named.count(name) > 1}):
                raise ValueError(f"[[{section}]] names {', '.join(twice)} more than once")
        if unknown := sorted({endpoint.model for endpoint in self.endpoints} - set(ids)):
            raise ValueError(f"[[endpoints]] name a model that is not among [[models]]: {', '.join(unknown)}")
        names = [endpoint.name for endpoint in self.endpoints]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"[[endpoints]] have the name {', '.join(twice)} more than once")
        levels = {model.id: model.level for model in self.models}
        for endpoint in self.endpoints:
            _check_level(endpoint, levels[endpoint.model])
        if self.validation is not None:
            _check_validation(self.validation, self.reading)
        return self

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of each slide's tasks, in their order."""
        return tasks_of([(model.id, model.level) for model in self.models], [each.id for each in self.encoders])

    @property
    def of_patients(self) -> tuple[StudyModel, ...]:
        """The models that predict patients."""
        return tuple(model for model in self.models if model.level == "patient")

    def frozen(self) -> dict[str, object]:
        """As the ledger keeps it: every setting with its value, including those left at their defaults."""
        return self.model_dump(mode="json")


def _check_level(endpoint: Endpoint, level: Level) -> None:
    if level == "tile" and endpoint.target is not None:
        raise ValueError(f"endpoint {endpoint.name}: `target` belongs to slide-level models")
    if level != "tile" and endpoint.level == "tile":
        raise ValueError(f"endpoint {endpoint.name}: model {endpoint.model} predicts {level}s, and not tiles")
    if level == "patient" and endpoint.level == "slide":
        raise ValueError(f'endpoint {endpoint.name}: model {endpoint.model} predicts patients: set level = "patient"')


def _check_validation(validation: Validation, reading: ReadingConfig | None) -> None:
    if reading is None or set(reading.arms) != {"glass", "digital"}:
        raise ValueError('[validation] needs [reading] with arms = ["glass", "digital"]')
    if reading.washout_days < validation.min_washout_days:
        raise ValueError(
            f"[reading] washout_days = {reading.washout_days:g} is below [validation] min_washout_days = "
            f"{validation.min_washout_days:g}"
        )
    names = [question.name for question in reading.questions if question.kind in ("choice", "yes_no")]
    if validation.question not in names:
        raise ValueError(f"[validation] question {validation.question}: name one of kind choice or yes_no: {names}")


def study_dir(project: Project, study_id: str) -> Path:
    """Folder of a study in its project. Raises BadManifestError: the id can name no folder."""
    return project.root / "studies" / check_name(study_id, what="study")


def load_protocol(path: Path) -> Protocol:
    """Read and check a protocol.

    Raises:
        BadRecipeError: cannot be read, not TOML, an unknown key, or values that do not fit.
    """
    return load_section(Protocol, path)


def frozen_protocol(raw: dict[str, object], study_id: str) -> Protocol:
    """Frozen protocol of a study, as its ledger keeps it.

    Raises:
        BadRecipeError: another version of gemslide froze it, with stages or settings that differ from this one's.
            Today's defaults would replace those that the study began with.
    """
    where = f"protocol of study {study_id} in the ledger"
    protocol = parse_section(Protocol, raw, where=where)
    if added := sorted(_added(protocol.frozen(), raw)):
        raise BadRecipeError(
            f"{where}: frozen by a version of gemslide without {', '.join(added[:10])}. Finish the study with that "
            "version, or begin another study."
        )
    return protocol


def _added(frozen: Mapping[str, object], raw: Mapping[str, object]) -> set[str]:
    """Keys that a protocol lacks and should have."""
    stated = _keys(raw)
    later = tuple(name for name in _LATER_SECTIONS if name not in stated)
    return {key for key in _keys(frozen) - stated if not any(f"{key}.".startswith(f"{name}.") for name in later)}


def _keys(table: Mapping[str, object], prefix: str = "") -> set[str]:
    """Dotted names of a table's keys and of the tables in it."""
    nested = (_keys(value, f"{prefix}{key}.") for key, value in table.items() if isinstance(value, Mapping))
    return {f"{prefix}{key}" for key in table}.union(*nested)


def load_study_cohort(protocol: Protocol, folder: Path, *, expected_sha256: str | None = None) -> tuple[Cohort, str]:
    """The manifest that a protocol names, and its SHA-256.

    Args:
        folder: of the protocol.
        expected_sha256: its value when the study began.

    Raises:
        BadManifestError: cannot be read. ChangedSourceError: it has changed.
    """
    path = Path(os.path.normpath(folder / protocol.study.cohort))
    if not path.is_file():
        raise BadManifestError(f"{path}: no such cohort manifest; [study] cohort in {folder / PROTOCOL_FILE} names it.")
    sha256 = sha256_of(path)
    if expected_sha256 not in (None, sha256):
        raise ChangedSourceError(
            f"{path}: has changed since the study began (SHA-256 {sha256[:12]}…, not {str(expected_sha256)[:12]}…). "
            "Restore the earlier file, or record the change with `gemslide study amend`."
        )
    return load_cohort(path), sha256


def tile_sets_of(protocol: Protocol) -> list[str]:
    """Tile sets whose labels are the reference of an endpoint; endpoint once."""
    return sorted({endpoint.tile_set for endpoint in protocol.endpoints if endpoint.tile_set is not None})


def find_models(protocol: Protocol, project: Project) -> dict[str, Path]:
    """Folder of each model's package, by its id.

    Raises:
        UnreadableError: missing. ChangedSourceError: its weights or its config.json are not those that the protocol
            names. BadRecipeError: it predicts something else than the protocol says.
    """
    return {model.id: _package(model, project) for model in protocol.models}


def _package(model: StudyModel, project: Project) -> Path:
    package = find_package(model.id, project)
    present = model_of(package)
    for what, now, then in (
        ("weights", present.sha256, model.sha256),
        ("config.json", present.config_sha256, model.config_sha256),
    ):
        if now != then:
            raise ChangedSourceError(
                f"{package}: has {what} with SHA-256 {now[:12]}…, but the protocol names for {model.id} "
                f"{then[:12]}…. Restore the model that the study began with."
            )
    if present.level != model.level:
        raise BadRecipeError(
            f"{package}: predicts {present.level}s, but [[models]] of the protocol says level = {model.level!r} for "
            f"{model.id}. Write level = {present.level!r}."
        )
    return package


def model_of(package: Path) -> StudyModel:
    """A package as a protocol names it, in its present state."""
    config_sha256 = sha256_of(package / "config.json")
    sha256 = sha256_of(weights_file(package))
    return StudyModel(id=package.name, sha256=sha256, config_sha256=config_sha256, level=level_of(package))
