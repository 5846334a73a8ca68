"""One kind of work on one slide: its dependencies, whether it is finished, the work itself, and its outputs.

Verbs run stages over slides directly (`pipeline.jobs.runner`); a study's ledger uses the same four methods.
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
    """`id` and `sha256` of each input."""
    outputs: tuple[Path, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration by phase, if there are several."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further facts on the slide for the run record: under each key, by slide."""
    warning: str | None = None
    """Clause that a person should know before relying on the outputs; it follows "slide S-1: "."""


class Stage(ABC):
    """A stage's work on one slide. It can be pickled and run in another process."""

    name: ClassVar[str]
    """The verb's name."""
    slide_id: str
    replaces: ClassVar[bool] = True
    """Whether finished outputs that were made from another key are replaced."""

    @property
    def task(self) -> str:
        """The name of its tasks in a study."""
        return self.name

    @property
    def slides(self) -> tuple[str, ...]:
        """Slides whose outputs it writes."""
        return (self.slide_id,)

    @abstractmethod
    def key(self) -> Key:
        """Everything that the outputs depend on, as JSON. Raises GemslideError if an input is missing or damaged."""

    @abstractmethod
    def made_from(self) -> Key | None:
        """The key that the published outputs state; None if they are missing or damaged."""

    def is_finished(self) -> bool:
        """Whether the outputs exist and were made from the current key, so that `run` would keep them."""
        made_from = self.made_from()
        is_same = made_from is not None and is_finished(made_from, self.key())
        return is_same and all(path.exists() for path in self.outputs())

    @abstractmethod
    def run(self, advance: Advance) -> StageReport:
        """Do the work, or keep finished outputs. Outputs appear only when complete.

        Raises:
            GemslideError: a fault in this slide.
        """

    @abstractmethod
    def outputs(self) -> tuple[Path, ...]:
        """Paths of the outputs, existing or not."""

    def out_of_memory(self, why: str) -> str:
        """Message for people when this process had too little memory for the slide.

        Args:
            why: message of the error when memory ran out; may be empty.
        """
        return (
            f"slide {self.slide_id}: memory ran out{f' ({why:.200})' if why else ''}. Finished outputs are kept. Free "
            "memory, process fewer slides at a time, or use a computer with more memory, and run again."
        )

    def crashed(self, how: str) -> str:
        """Message for people when the process working on this slide is gone.

        Args:
            how: such as "crashed or was stopped (exit code -11)".
        """
        return (
            f"slide {self.slide_id}: the process working on it {how}. "
            "If memory ran out, use fewer --workers; otherwise the slide may be damaged: try it alone."
        )
