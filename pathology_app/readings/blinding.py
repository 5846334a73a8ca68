"""Blinding in the web app: results of models and other readers for a slide are hidden from people who still have to
read it (docs/reference/studies.md).

Every page (`page_table.py`) and every route (`routes/declared.py`) declares what it shows, and is checked here before
it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pathology_app.html.text import READ_ERRORS
from pathology_app.people.person import Person
from pathology_app.project.ledger import study_ledger_of
from pathology_app.slides.cache import SlideCache
from pipeline.ledger import Ledger
from pipeline.ledger.ledger import StudyRow
from pipeline.project import Project
from pipeline.study import Blinded, blinded_slides, blinding_of, read_slides
from training.foundation.errors import GemslideError
from training.foundation.words.names import is_name


class BlindedError(GemslideError):
    """The requested content is hidden until readings are signed."""

    code = "blinded"


class Shows(StrEnum):
    """Content about models that a page or a route reveals."""

    NEITHER = "neither"
    """The slide itself, a person's own work: nothing from a model or another reader."""
    RESULT = "result"
    """Assessments of a slide by people, including its reference label: hidden where it is still to be read."""
    PREDICTION = "prediction"
    """A model's predictions for a slide: hidden, too, where the slide is not to be read, while models as such are."""
    MODEL = "model"
    """Models as such (names, cards, metrics, runs, logs), and results of any slide."""


@dataclass(frozen=True)
class Visibility:
    """Content that one person may see at the moment. An open page is redrawn when it changes.

    Attributes:
        first: why models as such are hidden; None where they are not.
        models: ids that must not be named.
        hidden: slides on which people's assessments are hidden, each with the reason.
        read: slides that the person has read, or reads now with the predictions before them (`read_slides`).
    """

    person: Person
    first: Blinded | None = None
    models: frozenset[str] = frozenset()
    hidden: Mapping[str, Blinded] = field(default_factory=dict)
    read: frozenset[str] = frozenset()

    @property
    def predicted(self) -> frozenset[str] | None:
        """Slides whose predictions may be shown; None: all."""
        if self.first is None:
            return None
        return self.read - {slide_id for slide_id, blinded in self.hidden.items() if not blinded.is_helped}

    @property
    def labelled(self) -> frozenset[str] | None:
        """Slides whose reference labels may be shown; None: all."""
        return None if self.first is None else self.read - self.hidden.keys()

    def hides_predictions(self, slide_id: str) -> Blinded | None:
        """Why predictions for a slide are hidden; None where they are not."""
        blinded = self.hidden.get(slide_id, None if slide_id in self.read else self.first)
        return None if blinded and blinded.is_helped else blinded

    def hides_assessments(self, slide_id: str) -> Blinded | None:
        """Why people's assessments of a slide are hidden; None where they are not."""
        return self.hidden.get(slide_id, self.hides_predictions(slide_id))

    def models_of(self, cache: SlideCache, slide_id: str) -> tuple[list[str], Blinded | None]:
        """Models whose predictions for a slide may be shown, and the reason if none may be.

        Raises:
            GemslideError, OSError: as `SlideCache.model_ids`.
        """
        blinded = self.hides_predictions(slide_id)
        return ([], blinded) if blinded else (cache.model_ids(slide_id), None)

    def attention_of(self, cache: SlideCache, slide_id: str) -> list[str]:
        """Slide-level models whose results for a slide may be shown: none that also saw a slide whose are hidden.

        Raises:
            GemslideError, OSError: as `SlideCache.attention_ids`.
        """
        if self.hides_predictions(slide_id):
            return []
        return [name for name in cache.attention_ids(slide_id) if not self._hides_any(cache, slide_id, name)]

    def _hides_any(self, cache: SlideCache, slide_id: str, model_id: str) -> bool:
        try:
            slides = cache.attention(slide_id, model_id).slides
        except READ_ERRORS:  # reported where it is shown, instead of its values
            return False
        return any(self.hides_predictions(other) for other in slides)

    def without_names(self, text: str) -> str:
        """Free text with the names of hidden models replaced."""
        for name in sorted(self.models, key=len, reverse=True):
            text = text.replace(name, "(a model)")
        return text


def visibility_of(project: Project, person: Person) -> Visibility:
    """Find what a person may see.

    Raises:
        GemslideError: the ledger does not answer. Then this is unknown, and nothing may be shown.
    """
    ledger = _ledger_for(project, person)
    if ledger is None:
        return Visibility(person)
    blinding = blinding_of(ledger, person.reader)
    first = next(iter(blinding.studies), None)
    hidden = blinded_slides(ledger, person.reader)
    return Visibility(person, first, blinding.models, hidden, read_slides(ledger, person.reader))


def check_shown(project: Project, person: Person, shows: Shows, slide_id: str | None = None) -> None:
    """Refuse to show a person what is hidden from them.

    Args:
        slide_id: the slide whose results are shown; None: any slide.

    Raises:
        BlindedError: hidden. GemslideError: as `visibility_of`.
    """
    ledger = None if shows is Shows.NEITHER else _ledger_for(project, person)
    if ledger is None or (slide_id is not None and not is_name(slide_id)):
        return
    blinded = None if slide_id is None else blinded_slides(ledger, person.reader, slide_id).get(slide_id)
    if blinded is not None and blinded.is_helped and shows is Shows.PREDICTION:
        return
    if blinded is None and (slide_id is None or shows is not Shows.RESULT):
        blinded = next(iter(blinding_of(ledger, person.reader).studies), None)
        if slide_id is not None and shows is Shows.PREDICTION and read_slides(ledger, person.reader, slide_id):
            blinded = None
    if blinded is not None:
        raise BlindedError(f"{f'slide {slide_id}: ' if slide_id else ''}{why_hidden(blinded)}")


def _ledger_for(project: Project, person: Person) -> Ledger | None:
    """The ledger that decides what is hidden from a person; None where nothing can be."""
    if person.name is not None and person.reader is None:
        return None  # signed in, but not a reader
    return study_ledger_of(project).ledger()


def study_models(row: StudyRow) -> list[str]:
    """Ids of the models that a frozen protocol names. Raises: as `StudyRow.frozen`."""
    return [str(model.get("id")) for model in row.frozen().get("models", [])]


def why_hidden(blinded: Blinded) -> str:
    """The reason as a message."""
    people = "the reference label, and other people's answers, reviews and annotations"
    what = people if blinded.is_helped else "predictions, models and other readers' answers"
    return f"{what} are hidden: {blinded.why}."
