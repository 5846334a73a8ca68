"""Questions for readers, in TOML, and checks of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.errors import BadManifestError
from pipeline.evaluation.statistics.agreement import Weights
from pipeline.review import SeenRule
from training.foundation.settings import Section
from training.foundation.words.class_names import check_class_name, check_printable
from training.foundation.words.names import NAME_PATTERN, comparable

MAX_TEXT = 10_000
Answer = str | float | bool


class Question(Section):
    """`[[reading.questions]]`"""

    name: str = Field(pattern=NAME_PATTERN)
    ask: Annotated[str, AfterValidator(check_printable), Field(max_length=2000)]
    """As shown to the reader."""
    kind: Literal["choice", "score", "yes_no", "text"]
    choices: tuple[Annotated[str, AfterValidator(check_class_name)], ...] = ()
    """Of `choice`, in their order."""
    ordered: bool = False
    """Of `choice`: the choices are grades in ascending order, and kappa counts how far apart two answers are."""
    weights: Weights = "quadratic"
    """Of ordered choices: disagreement grows with the distance between two grades (linear), or with its square."""
    low: float = 0.0
    high: float = 100.0
    """Of `score`."""
    required: bool = True
    class_name: Annotated[str, AfterValidator(check_class_name)] | None = None
    """Of `yes_no` and `score`: the class in question; answers are then compared with the slides' labels."""

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        if (self.kind == "choice") != bool(self.choices):
            raise ValueError(f"question {self.name}: `choices` belong to kind choice, and kind choice needs them")
        if self.ordered and len(self.choices) < 2:
            raise ValueError(f"question {self.name}: `ordered` belongs to kind choice with at least two choices")
        if "weights" in self.model_fields_set and not self.ordered and self.weights != "quadratic":
            raise ValueError(f"question {self.name}: `weights` belong to ordered choices; set ordered = true")
        if self.class_name is not None and self.kind not in ("yes_no", "score"):
            raise ValueError(f"question {self.name}: `class_name` belongs to the kinds yes_no and score")
        if len(set(self.choices)) != len(self.choices):
            raise ValueError(f"question {self.name}: a choice appears twice")
        if self.kind == "score" and not self.low < self.high:
            raise ValueError(f"question {self.name}: low must be below high, got {self.low:g} and {self.high:g}")
        return self

    def check(self, answer: Answer) -> Answer:
        """The answer, if it is valid for this question.

        Raises:
            BadManifestError: it is not.
        """
        answer = comparable(answer) if self.kind == "choice" and isinstance(answer, str) else answer
        expected = self._expected(answer)
        if expected:
            raise BadManifestError(f"question {self.name}: {answer!r:.200} is not a valid answer; give {expected}.")
        return answer

    def _expected(self, answer: Answer) -> str | None:
        """Description of a valid answer; None if this is one."""
        is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
        if self.kind == "choice":
            return None if answer in self.choices else f"one of {', '.join(self.choices)}"
        if self.kind == "yes_no":
            return None if isinstance(answer, bool) else "true or false"
        if self.kind == "score":
            inside = is_number and self.low <= float(answer) <= self.high
            return None if inside else f"a number from {self.low:g} to {self.high:g}"
        is_text = isinstance(answer, str) and len(answer) <= MAX_TEXT and _can_be_kept(answer)
        return None if is_text else f"text of up to {MAX_TEXT} characters"


def _can_be_kept(text: str) -> bool:
    """Whether a database can store a text: it takes neither lone surrogates nor NUL."""
    return "\0" not in text and text == text.encode(errors="replace").decode()


class ReadingConfig(Section):
    """`[reading]`: readers, what they read, how often, and what they are shown."""

    readers: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] = Field(min_length=1, max_length=1000)
    """Pseudonyms; names are kept elsewhere."""
    arms: tuple[Literal["unassisted", "assisted", "glass", "digital"], ...] = ("unassisted",)
    """Every reader reads each of their slides once in each. Only `assisted` shows predictions of a model; `glass` is
    read at the microscope."""
    order: Literal["crossover", "sequential"] = "crossover"
    """Crossover: half of the readers begin with the second arm. Sequential: all begin with the first."""
    repeats: int = Field(1, ge=1, le=10)
    """Readings of each slide in each arm: 2 shows how far readers agree with themselves."""
    groups: int = Field(1, ge=1, le=100)
    """Split-plot: readers and slides are split into so many groups; each group of readers reads only its own slides."""
    washout_days: float = Field(14.0, ge=0, le=3650)
    """Least time between two readings of a slide by one reader."""
    adjudicators: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] = ()
    """People who decide where readers disagree; not among the readers."""
    questions: tuple[Question, ...] = Field(min_length=1, max_length=200)
    seen: SeenRule = SeenRule()
    """When a part of a slide counts as seen."""
    note: Annotated[str, AfterValidator(check_printable), Field(max_length=2000)] = ""
    """Shown at the head of the report: for example, that readers are simulated."""

    @model_validator(mode="after")
    def names_fit(self) -> Self:
        for what, names in (
            ("readers", (*self.readers, *self.adjudicators)),
            ("arms", self.arms),
            ("questions", tuple(question.name for question in self.questions)),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"{what}: a name appears twice, among {', '.join(names)}")
        if self.groups > len(self.readers):
            raise ValueError(f"{self.groups} groups need as many readers, got {len(self.readers)}")
        return self

    def missing(self, given: Mapping[str, Answer]) -> list[Question]:
        """Required questions without an answer; an empty text does not count."""
        return [question for question in self.questions if question.required and given.get(question.name, "") == ""]

    def question(self, name: str) -> Question:
        """A question by name. Raises BadManifestError: there is no such question."""
        for question in self.questions:
            if question.name == name:
                return question
        raise BadManifestError(
            f"question {name!r:.100}: not in the protocol, which has {', '.join(q.name for q in self.questions)}."
        )
