"""A study's protocol: what is asked, of which slides, with which models and settings, and what counts as an answer.

`studies/<study_id>/study.toml` in the project. It is frozen when the study begins: the ledger keeps it, every result is
made with what the ledger has, and a file that has changed since is refused until the change is an amendment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import AfterValidator, Field, model_validator

from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.config import InferConfig, IngestConfig, QualityConfig, load_settings
from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.evaluation.stored import SlideScore
from pipeline.files import sha256_of, write_text_atomic
from pipeline.names import find_package
from pipeline.project import Project, check_name
from pipeline.study.questions import ReadingConfig
from training.foundation.class_names import check_class_name, check_printable
from training.foundation.model_files import weights_file
from training.foundation.names import NAME_PATTERN
from training.foundation.settings import Section, load_section, parse_section

PROTOCOL_FILE = "study.toml"
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Line = Annotated[str, AfterValidator(check_printable), Field(max_length=2000)]


class AboutStudy(Section):
    """`[study]`"""

    title: Line
    question: Line
    """What the study is to answer."""
    cohort: str = Field(min_length=1)
    """Manifest (CSV), relative to the protocol."""
    seed: int = Field(0, ge=0)
    """Of everything drawn at random: reading order, samples, resamples."""


class StudyModel(Section):
    """`[[models]]`: one model that predicts every slide."""

    id: str = Field(pattern=NAME_PATTERN)
    sha256: Sha256
    """Of the weights; another file of the same name is refused."""


class Patience(Section):
    """`[patience]`: how long to wait for a worker, and how often to try."""

    lease_s: float = Field(30.0, ge=1, le=86_400)
    """A worker silent for longer has lost its task."""
    max_attempts: int = Field(3, ge=1, le=100)
    """Of one task; then the slide is set aside."""
    backoff_s: float = Field(5.0, ge=0, le=86_400)
    """Before the second attempt; doubled before each further one, up to an hour."""


class Analysis(Section):
    """`[analysis]`: how the report's numbers are made."""

    threshold: float = Field(0.5, gt=0, lt=1)
    """Probability from which a tile, slide or patient is called positive, with two classes."""
    slide_score: SlideScore = "max"
    """A slide's score for a class: its cells' highest probability, their mean, or the mean of the highest tenth."""
    bootstrap: int = Field(2000, ge=0, le=100_000)
    """Resamples of the patients for intervals; 0: no intervals."""
    calibration_bins: int = Field(10, ge=2, le=100)
    cost_per_hour: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of one worker; 0: the report names no costs."""
    currency: Annotated[str, AfterValidator(check_printable), Field(max_length=8)] = "EUR"


class Validation(Section):
    """`[validation]`: of digital pathology against glass slides, along the guideline of the College of American
    Pathologists (Evans et al., Arch Pathol Lab Med 146:440, 2022)."""

    question: str = Field(pattern=NAME_PATTERN)
    """Whose answers are compared: the diagnosis."""
    min_cases: int = Field(60, ge=1)
    min_concordance: float = Field(0.95, gt=0, le=1)
    """Of each reader with themselves, glass against digital."""
    min_washout_days: float = Field(14.0, ge=0)


class Signer(Section):
    """`[[signers]]`: who may sign reports and anchors. Where nobody is named, every key may."""

    name: Line
    key_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    """As `gemslide study key` has said it."""
    may: tuple[Literal["authored", "reviewed", "approved", "anchor"], ...] = Field(min_length=1)


Measure = Literal["auc", "accuracy", "balanced_accuracy", "sensitivity", "specificity", "kappa"]


class Endpoint(Section):
    """`[[endpoints]]`: what is measured, and what was expected before anybody looked."""

    name: Annotated[str, AfterValidator(check_class_name)]
    measure: Measure
    level: Literal["tile", "slide", "patient"] = "slide"
    model: str = Field(pattern=NAME_PATTERN)
    class_name: Annotated[str, AfterValidator(check_class_name)] | None = None
    """Of `auc`, `sensitivity` and `specificity`: the positive class; with two classes the second, if not named."""
    tile_set: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None
    """Of level `tile`: the tile set whose labels are the reference."""
    at_least: float | None = Field(None, ge=-1, le=1)
    """The hypothesis: the lower end of the 95 % interval is at least this."""
    kind: Literal["primary", "secondary"] = "secondary"

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        if (self.level == "tile") != (self.tile_set is not None):
            raise ValueError(f"endpoint {self.name}: `tile_set` belongs to level tile, and level tile needs it")
        return self


class Protocol(Section):
    """All of `study.toml`."""

    study: AboutStudy
    models: tuple[StudyModel, ...] = Field(min_length=1, max_length=100)
    ingest: IngestConfig = IngestConfig()
    qc: QualityConfig = QualityConfig()
    infer: InferConfig = InferConfig()
    """`require_qc = true` ends slides that quality control did not find good as qc_failed."""
    patience: Patience = Patience()
    endpoints: tuple[Endpoint, ...] = ()
    analysis: Analysis = Analysis()
    signers: tuple[Signer, ...] = ()
    reading: ReadingConfig | None = None
    validation: Validation | None = None

    @model_validator(mode="after")
    def names_fit(self) -> Self:
        ids = [model.id for model in self.models]
        if twice := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"[[models]] names {', '.join(twice)} more than once")
        if unknown := sorted({each.model for each in self.endpoints} - set(ids)):
            raise ValueError(f"[[endpoints]] name a model that is not among [[models]]: {', '.join(unknown)}")
        names = [each.name for each in self.endpoints]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"[[endpoints]] have the name {', '.join(twice)} more than once")
        if self.validation is not None:
            _check_validation(self.validation, self.reading)
        return self

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of each slide's tasks, in their order."""
        return ("ingest", "qc", *(f"infer {model.id}" for model in self.models))

    def frozen(self) -> dict[str, object]:
        """As the ledger keeps it: every setting with its value, also those that were left at their defaults."""
        return self.model_dump(mode="json")


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
        raise ValueError(f"[validation] question {validation.question}: of kind choice or yes_no there are {names}")


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
    """The protocol that a ledger keeps. Raises BadRecipeError: it was written by another version."""
    return parse_section(Protocol, raw, where=f"protocol of study {study_id} in the ledger")


def load_study_cohort(protocol: Protocol, folder: Path, *, expected_sha256: str | None = None) -> tuple[Cohort, str]:
    """The manifest that a protocol names, and its SHA-256.

    Args:
        folder: where the protocol lies.
        expected_sha256: what it was when the study began.

    Raises:
        BadManifestError: cannot be read. ChangedSourceError: it is not what it was.
    """
    path = Path(os.path.normpath(folder / protocol.study.cohort))
    if not path.is_file():
        raise BadManifestError(f"{path}: no such cohort manifest; [study] cohort in {folder / PROTOCOL_FILE} names it.")
    sha256 = sha256_of(path)
    if expected_sha256 not in (None, sha256):
        raise ChangedSourceError(
            f"{path}: has changed since the study began (SHA-256 {sha256[:12]}…, not {str(expected_sha256)[:12]}…). "
            "Put the earlier file back, or record the change with `gemslide study amend`."
        )
    return load_cohort(path), sha256


def find_models(protocol: Protocol, project: Project) -> dict[str, Path]:
    """Folder of each model's package, by its id.

    Raises:
        UnreadableError: not there. ChangedSourceError: its weights are not those that the protocol names.
    """
    return {model.id: _package(model, project) for model in protocol.models}


def _package(model: StudyModel, project: Project) -> Path:
    package = find_package(model.id, project)
    sha256 = sha256_of(weights_file(package))
    if sha256 != model.sha256:
        raise ChangedSourceError(
            f"{package}: has other weights (SHA-256 {sha256[:12]}…) than the protocol names for {model.id} "
            f"({model.sha256[:12]}…). Put the model back that the study began with."
        )
    return package


def new_protocol(
    project: Project, study_id: str, about: AboutStudy, models: Sequence[str], template: str | None = None
) -> Path:
    """Write a protocol for people to complete; its settings are the project's.

    Args:
        about: `cohort` is relative to the current folder.
        template: "cap-validation" adds the design of a validation of digital pathology.

    Raises:
        BadManifestError: there is one already, or the cohort cannot be read. UnreadableError: no such model.
    """
    path = study_dir(project, study_id) / PROTOCOL_FILE
    if path.exists():
        raise BadManifestError(f"{path}: exists already. Choose another name for the study, or edit this one.")
    load_cohort(Path(about.cohort))
    packages = [find_package(model, project) for model in models]
    settings = load_settings(project.settings_path)
    content: dict[str, Any] = {
        "study": {
            **about.model_dump(),
            "cohort": os.path.relpath(os.path.abspath(about.cohort), path.parent.absolute()),
        },
        "models": [{"id": package.name, "sha256": sha256_of(weights_file(package))} for package in packages],
        "ingest": settings.ingest.model_dump(mode="json", exclude_unset=True),
        "qc": settings.qc.model_dump(mode="json", exclude_unset=True),
        "infer": settings.infer.model_dump(mode="json", exclude_unset=True),
    }
    content |= TEMPLATES[template] if template else {}
    parse_section(Protocol, content, where="the study")
    write_text_atomic(path, _HEADING + tomli_w.dumps({name: table for name, table in content.items() if table}))
    return path


TEMPLATES: dict[str, dict[str, Any]] = {
    "cap-validation": {
        "reading": {
            "readers": ["reader-1"],
            "arms": ["glass", "digital"],
            "order": "crossover",
            "washout_days": 14.0,
            "questions": [
                {
                    "name": "diagnosis",
                    "ask": "What is the diagnosis?",
                    "kind": "choice",
                    "choices": ["benign", "atypical", "malignant"],
                },
                {"name": "remarks", "ask": "Anything to say about the slide?", "kind": "text", "required": False},
            ],
        },
        "validation": {"question": "diagnosis", "min_cases": 60, "min_concordance": 0.95, "min_washout_days": 14.0},
    },
}
"""Sections that `study init --template` writes, to complete."""

_HEADING = """\
# Protocol of a study. It is frozen when the study begins; later changes are amendments, each with its reason.
# All sections and keys: docs/studies.md.

"""
