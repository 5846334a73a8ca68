"""What readers are asked, in TOML, and whether an answer is one."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.errors import BadManifestError
from training.foundation.class_names import check_class_name, check_printable
from training.foundation.names import NAME_PATTERN
from training.foundation.settings import Section

MAX_TEXT = 10_000
Answer = str | float | bool


class Question(Section):
    """`[[reading.questions]]`"""

    name: str = Field(pattern=NAME_PATTERN)
    ask: Annotated[str, AfterValidator(check_printable), Field(max_length=2000)]
    """As the reader reads it."""
    kind: Literal["choice", "score", "yes_no", "text"]
    choices: tuple[Annotated[str, AfterValidator(check_class_name)], ...] = ()
    """Of `choice`, in their order: grades can be compared by it."""
    low: float = 0.0
    high: float = 100.0
    """Of `score`."""
    required: bool = True
    class_name: Annotated[str, AfterValidator(check_class_name)] | None = None
    """Of `yes_no` and `score`: the class that is asked about; answers are then held against the slides' labels."""

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        if (self.kind == "choice") != bool(self.choices):
            raise ValueError(f"question {self.name}: `choices` belong to kind choice, and kind choice needs them")
        if self.class_name is not None and self.kind not in ("yes_no", "score"):
            raise ValueError(f"question {self.name}: `class_name` belongs to the kinds yes_no and score")
        if len(set(self.choices)) != len(self.choices):
            raise ValueError(f"question {self.name}: a choice stands there twice")
        if self.kind == "score" and not self.low < self.high:
            raise ValueError(f"question {self.name}: low must be below high, got {self.low:g} and {self.high:g}")
        return self

    def check(self, answer: Answer) -> Answer:
        """The answer, if it is one to this question.

        Raises:
            BadManifestError: it is not.
        """
        expected = self._expected(answer)
        if expected:
            raise BadManifestError(f"question {self.name}: {answer!r:.200} is no answer; give {expected}.")
        return answer

    def _expected(self, answer: Answer) -> str | None:
        """What an answer would be; None where this is one."""
        is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
        if self.kind == "choice":
            return None if answer in self.choices else f"one of {', '.join(self.choices)}"
        if self.kind == "yes_no":
            return None if isinstance(answer, bool) else "true or false"
        if self.kind == "score":
            inside = is_number and self.low <= float(answer) <= self.high
            return None if inside else f"a number from {self.low:g} to {self.high:g}"
        return None if isinstance(answer, str) and len(answer) <= MAX_TEXT else f"text of up to {MAX_TEXT} characters"


class ReadingConfig(Section):
    """`[reading]`: who reads what, how often, with what shown."""

    readers: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] = Field(min_length=1, max_length=1000)
    """Pseudonyms: names stand elsewhere."""
    arms: tuple[Literal["unassisted", "assisted", "glass", "digital"], ...] = ("unassisted",)
    """Every reader reads every one of their slides once in each. `assisted` alone shows predictions of a model; `glass`
    is read at the microscope."""
    order: Literal["crossover", "sequential"] = "crossover"
    """Crossover: half of the readers begin with the second arm. Sequential: all begin with the first."""
    repeats: int = Field(1, ge=1, le=10)
    """Readings of each slide in each arm: with 2, how far readers agree with themselves."""
    groups: int = Field(1, ge=1, le=100)
    """Split-plot: readers and slides in so many groups; each group of readers reads its own slides alone."""
    washout_days: float = Field(14.0, ge=0, le=3650)
    """At least so long between two readings of a slide by one reader."""
    adjudicators: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] = ()
    """Who decides where readers disagree; not among the readers."""
    questions: tuple[Question, ...] = Field(min_length=1, max_length=200)
    note: Annotated[str, AfterValidator(check_printable), Field(max_length=2000)] = ""
    """Stands at the head of the report: that readers are simulated, say."""

    @model_validator(mode="after")
    def names_fit(self) -> Self:
        for what, names in (
            ("readers", (*self.readers, *self.adjudicators)),
            ("arms", self.arms),
            ("questions", tuple(question.name for question in self.questions)),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"{what}: a name stands there twice, among {', '.join(names)}")
        if self.groups > len(self.readers):
            raise ValueError(f"{self.groups} groups need as many readers, got {len(self.readers)}")
        return self

    def question(self, name: str) -> Question:
        """Raises BadManifestError: there is no such question."""
        for question in self.questions:
            if question.name == name:
                return question
        raise BadManifestError(f"question {name!r:.100}: there are {', '.join(q.name for q in self.questions)}.")
