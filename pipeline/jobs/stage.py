"""One kind of work on one slide: what it depends on, whether it is finished, doing it, and what it leaves.

Verbs run stages over slides here and now (`pipeline.jobs.runner`); whoever keeps a ledger of a study asks the same four
questions of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pipeline.jobs.key import Key, is_finished
from pipeline.run_record import SlideOutcome
from training.foundation.progress import Advance


@dataclass(frozen=True)
class StageReport:
    """Outcome of one slide's stage, and its part of a run record."""

    outcome: SlideOutcome
    inputs: tuple[dict[str, str], ...] = ()
    """`id` and `sha256` of what it read."""
    outputs: tuple[Path, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase, where there are several."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further facts on the slide for the run record: under each key, by slide."""
    warning: str | None = None
    """Clause that a person should know before relying on the outputs; it goes on after "slide S-1: "."""


class Stage(ABC):
    """A stage's work on one slide. It can be pickled, and be done in another process."""

    name: ClassVar[str]
    """As the verb is called."""
    slide_id: str
    replaces: ClassVar[bool] = True
    """Whether finished outputs that were made from another key are replaced."""

    @property
    def task(self) -> str:
        """As a study's tasks are called."""
        return self.name

    @abstractmethod
    def key(self) -> Key:
        """Everything that the outputs depend on, as JSON. Raises GemslideError where an input is missing or damaged."""

    @abstractmethod
    def made_from(self) -> Key | None:
        """The key that the published outputs state; None where there are none, or damaged ones."""

    def is_finished(self) -> bool:
        """Whether the outputs are there, made from what would be asked for now: `run` would keep them."""
        made_from = self.made_from()
        is_same = made_from is not None and is_finished(made_from, self.key())
        return is_same and all(path.exists() for path in self.outputs())

    @abstractmethod
    def run(self, advance: Advance) -> StageReport:
        """Do it, or keep what is finished. Outputs appear when they are whole.

        Raises:
            GemslideError: what is wrong with this slide.
        """

    @abstractmethod
    def outputs(self) -> tuple[Path, ...]:
        """Paths at which the outputs are, or will be."""

    def out_of_memory(self, why: str) -> str:
        """Message for people when this process had too little memory for the slide.

        Args:
            why: message of the error when memory ran out; may be empty.
        """
        return (
            f"slide {self.slide_id}: memory ran out{f' ({why:.200})' if why else ''}. What was finished is kept. Free "
            "memory, do fewer slides at a time, or use a computer with more, and run again."
        )

    def crashed(self, how: str) -> str:
        """Message for people when the process working on this slide is gone.

        Args:
            how: "crashed or was stopped (exit code -11)".
        """
        return (
            f"slide {self.slide_id}: the process working on it {how}. "
            "If memory ran out, use fewer --workers; else the slide is damaged: try it alone."
        )
