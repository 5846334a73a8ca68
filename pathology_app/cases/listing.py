"""Slides of one case, neighbours in a list, and slides found by words, each for one person.

A case is the slides of one `patient_id` of the project's manifest. Slides that the person may not see, and slides of
studies that they still have to read, are in none of these lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pathology_app.access.visibility import may_see_study, visible
from pathology_app.links.worklist import WorklistLink
from pathology_app.people.person import Person
from pathology_app.project.ledger import study_ledger_of
from pathology_app.readings.blinding import Visibility, visibility_of
from pathology_app.readings.status import reading_states
from pathology_app.slides.index.index import SlideIndex, current_index
from pathology_app.slides.index.table import Listed
from pathology_app.slides.index.wanted import Wanted
from pipeline.errors import BadManifestError
from pipeline.project import Project
from pipeline.study import study_slide_ids

MAX_CASE = 60
"""Slides of a case that are listed: those around the slide shown, in the case's order."""
AROUND = 8
"""Neighbours listed before a slide, and after it."""
MAX_FOUND = 24
_WAIT_S = 5.0
"""Longest wait for the index of a small project, right after the app's start: before that, no case is known."""
_NUMBER = re.compile(r"(\d+)", re.ASCII)


@dataclass(frozen=True)
class Neighbour:
    """A slide beside the one shown.

    Attributes:
        page: of the worklist, from 1, where the list is sorted slide by slide; None elsewhere.
    """

    listed: Listed
    page: int | None = None

    @property
    def slide_id(self) -> str:
        return self.listed.slide_id


@dataclass(frozen=True)
class Viewpoint:
    """What one person may see of the project's slides."""

    index: SlideIndex
    person: Person
    visibility: Visibility
    only: frozenset[str] | None
    """Slides that the person may see; None: all."""
    project: Project

    def shown(self, listed: Iterable[Listed]) -> list[Listed]:
        """The slides of a list without those that the person still has to read."""
        return [slide for slide in listed if slide.slide_id not in self.visibility.hidden]

    def wanted(self, **choice: object) -> Wanted:
        """A choice among the slides that the person may see."""
        return replace(
            Wanted(predicted=self.visibility.predicted, labelled=self.visibility.labelled, only=self.only),
            **choice,  # type: ignore[arg-type]
        )


def viewpoint_of(project: Project, person: Person) -> Viewpoint:
    """Find what a person may see.

    Raises:
        GemslideError, OSError: this cannot be known now; then nothing may be shown.
    """
    index = current_index()
    index.look(wait_s=_WAIT_S)
    only = None if person.slides is None else frozenset(visible(person, index.table.slide_ids))
    return Viewpoint(index, person, visibility_of(project, person), only, project)


def entry_of(view: Viewpoint, slide_id: str) -> Listed | None:
    """A slide's entry in the index; None for one that the person may not see."""
    return next(iter(view.index.table.find(view.wanted(slide_id=slide_id), skip=0, limit=1)), None)


def slides_of_case(view: Viewpoint, slide_id: str) -> list[Listed]:
    """Slides of a slide's case, by block, stain and name; only the slide itself if its case is unknown."""
    own = entry_of(view, slide_id)
    if own is None:
        return []
    case_id = own.cohort.case_id
    if case_id is None:
        return [own]
    # More than are shown: a long case is cut around the slide.
    listed = view.index.table.find(view.wanted(case_id=case_id), skip=0, limit=20 * MAX_CASE)
    others = [slide for slide in view.shown(listed) if slide.slide_id != slide_id]
    return around(sorted([own, *others], key=_in_case), slide_id, MAX_CASE)


def same_block_first(listed: Iterable[Listed], slide_id: str) -> list[Listed]:
    """Slides of a case, that one first, then those of its block, then the rest."""
    slides = list(listed)
    block = next((slide.cohort.block for slide in slides if slide.slide_id == slide_id), None)

    def rank(slide: Listed) -> int:
        return 0 if slide.slide_id == slide_id else 1 if block and slide.cohort.block == block else 2

    return sorted(slides, key=rank)


def compared_with(view: Viewpoint, slide_id: str) -> list[str]:
    """Slides to show beside one: the others of its block, or of its case if it has none."""
    case = same_block_first(slides_of_case(view, slide_id), slide_id)
    if not case:
        return []
    own, *others = case
    block = [slide for slide in others if own.cohort.block and slide.cohort.block == own.cohort.block]
    return [slide.slide_id for slide in block or others]


def neighbours_in_list(view: Viewpoint, slide_id: str, link: WorklistLink, per_page: int) -> list[Neighbour]:
    """Slides before and after one in the worklist that a link names, with it; none if it is not in that list.

    Args:
        per_page: slides on a page of the worklist.
    """
    readings = reading_states(view.project, view.person)
    states, words = (readings.states, readings.statuses) if readings else ({}, ())
    wanted = link.wanted(states, words, view.visibility.predicted)
    wanted = replace(wanted, labelled=view.visibility.labelled, only=view.only)
    pages = None if link.by_case else per_page
    return _neighbours(view, slide_id, wanted, pages)


def neighbours_in_study(view: Viewpoint, slide_id: str, study_id: str) -> list[Neighbour]:
    """Slides before and after one in a study, by name; none where the person may not see the study."""
    ledger = study_ledger_of(view.project).ledger()
    if ledger is None or not may_see_study(view.person, study_id):
        return []
    try:
        of_study = study_slide_ids(ledger, study_id)
    except BadManifestError:  # no such study
        return []
    only = of_study if view.only is None else of_study & view.only
    return _neighbours(view, slide_id, view.wanted(only=only), None)


def _neighbours(view: Viewpoint, slide_id: str, wanted: Wanted, per_page: int | None) -> list[Neighbour]:
    table = view.index.table
    position = table.position(wanted, slide_id)
    if position is None:
        return []
    skip = max(0, position - AROUND)
    found = table.find(wanted, skip=skip, limit=position - skip + AROUND + 1)
    hidden = view.visibility.hidden
    return [
        Neighbour(slide, (skip + at) // per_page + 1 if per_page else None)
        for at, slide in enumerate(found)
        if slide.slide_id == slide_id or slide.slide_id not in hidden
    ]


def find_slides(view: Viewpoint, text: str, beside: str | None) -> list[tuple[Listed, str]]:
    """Slides whose names contain all words of a text, each with its relation to another slide: its case comes first.

    Args:
        beside: that slide; None: there is none.
    """
    words = text.casefold().split()
    case = same_block_first(slides_of_case(view, beside), beside) if beside else []
    block = case[0].cohort.block if case else None
    found = {}
    for slide in case:
        if all(word in slide.slide_id.casefold() or word in _words(slide) for word in words):
            is_same = block is not None and slide.cohort.block == block
            found[slide.slide_id] = (slide, "same block" if is_same else "same case")
    if beside in found:
        found[beside] = (found[beside][0], "this slide")
    for slide in view.shown(view.index.table.find(view.wanted(words=words), skip=0, limit=2 * MAX_FOUND)):
        found.setdefault(slide.slide_id, (slide, ""))
    return list(found.values())[:MAX_FOUND]


def around(listed: list[Listed], slide_id: str, most: int) -> list[Listed]:
    """At most so many slides of a list, with a slide in their middle where it can be."""
    at = next((index for index, slide in enumerate(listed) if slide.slide_id == slide_id), 0)
    start = max(0, min(at - most // 2, len(listed) - most))
    return listed[start : start + most]


def query_to(
    query: Mapping[str, str], neighbour: Neighbour, model_id: str | None, class_name: str | None
) -> dict[str, str]:
    """The query of a neighbour's page: the way back to the list stays in it.

    Args:
        query: of the page shown, without what belongs to its slide.
        model_id, class_name: the model to show and its class, if the neighbour has the model's predictions.
    """
    models = neighbour.listed.facts.models if neighbour.listed.facts else ()
    kept = dict(query)
    if neighbour.page is not None:
        kept.pop("page", None)
        kept |= {"page": str(neighbour.page)} if neighbour.page > 1 else {}
    kept["slide"] = neighbour.slide_id
    if model_id and any(model.model_id == model_id for model in models):
        kept |= {"model": model_id, **({"class": class_name} if class_name else {})}
    return kept


def _in_case(slide: Listed) -> tuple[object, ...]:
    cohort = slide.cohort
    return (cohort.block is None, _natural(cohort.block), cohort.stain is None, _natural(cohort.stain), slide.slide_id)


def _natural(text: str | None) -> list[tuple[int, int, str]]:
    """Order in which A2 comes before A10."""
    parts = _NUMBER.split((text or "").casefold())
    return [(0, int(part[:18]), part) if part.isascii() and part.isdigit() else (1, 0, part) for part in parts]


def _words(slide: Listed) -> str:
    return " ".join(filter(None, (slide.cohort.block, slide.cohort.stain))).casefold()
