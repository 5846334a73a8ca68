"""Kinds of a study's tasks, and a task as it is given to a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pipeline.cohort.manifest import Cohort
from pipeline.jobs.stage import Stage
from pipeline.project import Project
from training.foundation.settings import Section


class Source(NamedTuple):
    """Source of a slide."""

    path: Path
    mpp: float | None
    """The manifest's, if it has one."""
    series: str | None = None
    """Slide of a file with several, by the manifest."""


def sources_of(cohort: Cohort) -> dict[str, Source]:
    """The slide files of a cohort, by slide id."""
    return {entry.slide_id: Source(cohort.slide_path(entry), entry.mpp, entry.series) for entry in cohort.included}


class Output(NamedTuple):
    """The output of a finished task: one slide's, of one model or encoder if the kind is of these.

    Attributes:
        network_id: the model's or encoder's id; "" if the kind is of neither.
    """

    project: Project
    slide_id: str
    network_id: str = ""

    @property
    def store(self) -> Path:
        return self.project.store_path(self.slide_id)


@dataclass(frozen=True)
class Work:
    """Everything that a task's work depends on.

    Attributes:
        settings: the protocol's section of the task's kind.
        packages: folder of each model, by its id.
        encoders: row of each encoder, by its id.
        unit: what the task is about: the slide's or the patient's id.
        slide_ids: slides that the task needs, sorted: its own one, or all of the patient.
    """

    output: Output
    source: Source
    settings: Section
    packages: Mapping[str, Path]
    encoders: Mapping[str, Path]
    devices: tuple[str, ...]
    unit: str
    slide_ids: tuple[str, ...]


class StageKind(ABC):
    """One kind of task. A study has one for each slide, or one for each slide and model or encoder.

    Attributes:
        name: of its tasks.
        section: the name of its section in the protocol and in `gemslide.toml`.
        settings: that section.
        of_models: a task for each of the study's models of this kind, called "name model".
        of_encoders: a task for each of the study's encoders, called "name encoder".
        joins: whether a task may need other slides of the patient: it waits until they have come as far
            (`pipeline.study.work.patients`).
    """

    name: ClassVar[str]
    section: ClassVar[str]
    settings: ClassVar[type[Section]]
    of_models: ClassVar[bool] = False
    of_encoders: ClassVar[bool] = False
    joins: ClassVar[bool] = False

    def task(self, network_id: str = "") -> str:
        """A task's name."""
        return f"{self.name} {network_id}" if self.of_models or self.of_encoders else self.name

    def outputs(self, project: Project, slide_id: str) -> Iterator[Path]:
        """Folders with a slide's outputs of every study and model, which an erasure deletes; none for a stage that
        writes only to the store."""
        return iter(())

    @abstractmethod
    def stage(self, work: Work) -> Stage:
        """The work of a task. What it needs is imported here: reading a protocol needs none of it."""

    @abstractmethod
    def output_sha256(self, output: Output) -> str:
        """SHA-256 of a finished task's output: equal if a rerun gave the same, at any time on any machine.

        Raises:
            UnreadableError: it is missing or damaged.
        """

    @abstractmethod
    def measures(self, output: Output) -> dict[str, Any]:
        """Values of the output that the ledger keeps, so that the report reads the ledger and no store; and the SHA-256
        of its files that `output_sha256` does not cover, or that are exported.

        Raises:
            UnreadableError: the output is missing or damaged. OSError: a file cannot be read.
        """

    def changed_files(self, output: Output, *, all_pixels: bool) -> Iterator[str]:
        """Report problems with the output's files beyond hash and measures. Raises: OSError, ValueError.

        Args:
            all_pixels: read every file of pixels, not only the smallest ones.
        """
        return iter(())
