"""What slide-level models say of a slide or its patient, as the viewer shows it. Nothing here draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pathology_app.html.text import READ_ERRORS, as_text, message_of
from pathology_app.slides.cache import SlideCache
from pipeline.slide_level.record import MAX_RECORD_BYTES, RECORD
from pipeline.store.format.metadata import first_finding
from training.foundation.errors import UnreadableError
from training.foundation.reading import read_json_file
from training.foundation.words.counts import counted

MAX_TARGETS, MAX_VALUES, MAX_SLIDES = 1_000, 1_000, 10_000
_SHARES = ("class", "ordinal", "discrete")

Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)


class Target(_Frozen):
    """One target's values: probabilities of classes; a number; the log of a relative risk; or the probability of no
    event by each bound."""

    kind: Literal["class", "ordinal", "number", "cox", "discrete"]
    values: Annotated[tuple[float, ...], Field(min_length=1, max_length=MAX_VALUES, strict=False)]
    classes: Annotated[tuple[Name, ...], Field(max_length=MAX_VALUES, strict=False)] = ()
    bounds: Annotated[tuple[float, ...], Field(max_length=MAX_VALUES, strict=False)] = ()
    group: Literal["higher risk", "lower risk"] | None = None

    @model_validator(mode="after")
    def fits(self) -> Target:
        named = {"discrete": self.bounds, "number": (0,), "cox": (0,)}.get(self.kind, self.classes)
        if len(named) != len(self.values):
            raise ValueError(f"{counted(len(self.values), 'value')} for {len(named)} of kind {self.kind!r}")
        if self.kind in _SHARES and not all(0 <= value <= 1 for value in self.values):
            raise ValueError(f"values from {min(self.values):g} to {max(self.values):g}, which are no probabilities")
        return self


class Answer(_Frozen):
    """A model's predictions for a patient or slide."""

    model_id: str
    level: Literal["patient", "slide"]
    unit: Name
    slides: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_SLIDES, strict=False)]
    tiles: int = Field(ge=1)
    targets: Annotated[dict[Name, Target], Field(min_length=1, max_length=MAX_TARGETS)]
    made_from: dict[str, Any]


def read_answer(cache: SlideCache, slide_id: str, model_id: str) -> Answer:
    """What a model says of a slide or its patient; it must have been written with the attention over the slide.

    Raises:
        BadLinkError, UnknownNameError: no such slide, or no attention of such a model.
        UnreadableError: it is missing or damaged, or it was not made with this attention.
        GemslideError, OSError: the attention is damaged or cannot be read.
    """
    opened = cache.attention(slide_id, model_id)
    path = cache.project.result_dir(slide_id, model_id) / RECORD
    try:
        answer = Answer.model_validate(read_json_file(path, max_bytes=MAX_RECORD_BYTES))
    except ValidationError as error:
        raise _unreadable(model_id, first_finding(error)) from error
    except (OSError, ValueError) as error:
        raise _unreadable(model_id, f"{type(error).__name__}: {error}") from error
    stated = opened.attention.attributes.get("made_from")
    made_from = {k: v for k, v in stated.items() if k != "source_sha256"} if isinstance(stated, dict) else None
    if (answer.model_id, answer.made_from, answer.slides) != (model_id, made_from, opened.slides):
        raise _unreadable(model_id, "it was not written with the attention over this slide")
    return answer


def answers_of(cache: SlideCache, slide_id: str, model_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Answers of slide-level models in the viewer's format (frontend/src/types.ts, Answer); a fault replaces its rows.

    Args:
        model_ids: those whose results may be shown (`Visibility.attention_of`).
    """
    answers = []
    for model_id in model_ids:
        try:
            answer = read_answer(cache, slide_id, model_id)
            about, rows = about_text(answer), [(as_text(name), _text(answer, name)) for name in answer.targets]
        except READ_ERRORS as error:
            about, rows = message_of(error, cache.project.root), []
        answers.append({"model": as_text(model_id), "about": about, "rows": rows})
    return answers


def short_text(answer: Answer) -> str:
    """An answer in a few words, for lists: "tumour: yes 0.93; survival: higher risk"."""
    return as_text("; ".join(f"{name}: {_short(target)}" for name, target in answer.targets.items()))


def class_scores(answer: Answer) -> dict[str, float]:
    """Probability of each class of each target that has some, as "tumour: yes"."""
    return {
        f"{name}: {class_name}": value
        for name, target in answer.targets.items()
        for class_name, value in zip(target.classes, target.values, strict=False)
        if target.kind in ("class", "ordinal")
    }


def _short(target: Target) -> str:
    if target.kind in ("class", "ordinal"):
        value, name = max(zip(target.values, target.classes, strict=True), key=lambda item: item[0])
        return f"{name} {value:.2f}"
    if target.group:
        return target.group
    if target.kind == "cox":
        return f"log of the relative risk {target.values[0]:.2f}"
    if target.kind == "discrete":
        return f"no event by {target.bounds[-1]:g}: {target.values[-1]:.2f}"
    return f"{target.values[0]:.4g}"


def about_text(answer: Answer) -> str:
    """What an answer is about: "Patient P-1, 2 slides, 87 tiles"."""
    tiles = counted(answer.tiles, "tile")
    if answer.level == "slide":
        return f"This slide, {tiles}"
    return as_text(f"Patient {answer.unit}, {counted(len(answer.slides), 'slide')}, {tiles}")


def _text(answer: Answer, name: str) -> str:
    target = answer.targets[name]
    return as_text(_TEXTS[target.kind](target, answer.level))


def _classes_text(target: Target, _: str) -> str:
    ranked = sorted(zip(target.classes, target.values, strict=True), key=lambda item: -item[1])
    return " · ".join(f"{as_text(name)} {value:.2f}" for name, value in ranked)


def _number_text(target: Target, _: str) -> str:
    return f"{target.values[0]:.4g}"


def _cox_text(target: Target, level: str) -> str:
    return "; ".join([*_group(target, level), f"log of the relative risk {target.values[0]:.2f}"])


def _intervals_text(target: Target, level: str) -> str:
    shares = (f"{bound:g}: {value:.2f}" for bound, value in zip(target.bounds, target.values, strict=True))
    return "; ".join([*_group(target, level), f"no event by {' · '.join(shares)}"])


def _group(target: Target, level: str) -> list[str]:
    return [f"{target.group} than half of the training {level}s"] if target.group else []


_TEXTS: Mapping[str, Callable[[Target, str], str]] = {
    "class": _classes_text,
    "ordinal": _classes_text,
    "number": _number_text,
    "cox": _cox_text,
    "discrete": _intervals_text,
}


def _unreadable(model_id: str, why: str) -> UnreadableError:
    return UnreadableError(
        f"{RECORD} of model {model_id!r}: not readable ({why}). Make it again with `gemslide infer`."
    )
