"""Slides that a person may see: checked wherever a slide, or anything made from it, is shown, listed or exported."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from pathology_app.html.text import READ_ERRORS
from pathology_app.people.account_file import STUDY_PREFIX
from pathology_app.people.person import Person
from pathology_app.project.ledger import Remembered, current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from pathology_app.slides.cache import SlideCache, UnknownNameError, not_in_project
from pipeline.errors import BadManifestError
from pipeline.study import study_slide_ids

SLIDE_SUBJECT = "slide "
"""Prefix of a slide's name in the log."""
_MAX_STUDIES = 32
_LOCK = threading.Lock()
_STUDIES: OrderedDict[tuple[str, str], Remembered[frozenset[str]]] = OrderedDict()


def may_see(person: Person, slide_id: str) -> bool:
    """Whether a person may see a slide, and anything made from it.

    Raises:
        GemslideError: it depends on a study, and the ledger is unavailable.
    """
    if person.slides is None:
        return True
    return any(_matches(pattern, slide_id) for pattern in person.slides)


def may_see_study(person: Person, study_id: str) -> bool:
    """Whether a person may see a study's progress, with the names of all its slides."""
    return person.slides is None or f"{STUDY_PREFIX}{study_id}" in person.slides


def visible(person: Person, slide_ids: Iterable[str]) -> list[str]:
    """Slides that a person may see, in the given order. Raises: as `may_see`."""
    return [slide_id for slide_id in slide_ids if may_see(person, slide_id)]


def entries_for(person: Person, entries: Iterable[Any]) -> list[Any]:
    """Entries of the project's log for a person; one who may see only some slides gets their own and those about these.

    Raises: as `may_see`.
    """
    if person.slides is None:
        return list(entries)
    return [entry for entry in entries if entry.actor == person.actor or _is_about_visible_slide(person, entry.subject)]


def _is_about_visible_slide(person: Person, subject: str | None) -> bool:
    slide_id = (subject or "").removeprefix(SLIDE_SUBJECT)
    return slide_id != subject and bool(slide_id) and may_see(person, slide_id)


def check_may_see(person: Person, slide_id: str) -> None:
    """Refuse a slide that a person may not see, with the message for one that does not exist.

    Raises:
        HiddenSlideError: they may not see it. GemslideError: as `may_see`.
    """
    if not may_see(person, slide_id):
        raise HiddenSlideError(not_in_project(f"slide {slide_id!r}"))


def attended_of(cache: SlideCache, visibility: Visibility, slide_id: str) -> list[str]:
    """Slide-level models whose results for a slide may be shown: none that rests on a slide hidden from the person.

    Raises:
        GemslideError, OSError: as `Visibility.attention_of` and `may_see`.
    """
    model_ids = visibility.attention_of(cache, slide_id)
    if visibility.person.slides is None:
        return model_ids
    return [name for name in model_ids if not _is_hidden(cache, visibility.person, slide_id, name)]


def _is_hidden(cache: SlideCache, person: Person, slide_id: str, model_id: str) -> bool:
    try:
        slides = cache.attention(slide_id, model_id).slides
    except READ_ERRORS:  # reported where it is shown, instead of its values
        return False
    return not slides or visible(person, slides) != list(slides)


class HiddenSlideError(UnknownNameError):
    """A slide hidden from the person; the message does not reveal whether it exists."""


def _matches(pattern: str, slide_id: str) -> bool:
    study_id = pattern.removeprefix(STUDY_PREFIX)
    return fnmatchcase(slide_id, pattern) if study_id == pattern else slide_id in _study_slides(study_id)


def _study_slides(study_id: str) -> frozenset[str]:
    """Slides of a study; none if the study does not exist."""
    key = (str(served_project().root), study_id)
    with _LOCK:
        if key not in _STUDIES:
            _STUDIES[key] = Remembered(lambda: _load_slides(study_id))
        _STUDIES.move_to_end(key)
        while len(_STUDIES) > _MAX_STUDIES:
            _STUDIES.popitem(last=False)
        remembered = _STUDIES[key]
    return remembered.get()


def _load_slides(study_id: str) -> frozenset[str]:
    ledger = current_study_ledger().ledger()
    try:
        return study_slide_ids(ledger, study_id) if ledger else frozenset()
    except BadManifestError:
        return frozenset()
