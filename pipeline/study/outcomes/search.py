"""Search for slides of a study, a page at a time: by state, by code, by part of a name; and by who is named in the log.

The database does the work, so that a page of a hundred thousand slides takes no longer than one of a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, func, select

from pipeline.ledger.ledger import Ledger, found
from pipeline.ledger.rows import PROJECT_LOG, slide_subject
from pipeline.ledger.tables import audit, slide

MAX_WORDS, MAX_WORD = 8, 64
"""Limits of a search; no slide's name is longer than a word may be."""
NO_CODE = ""
"""Stands for slides that have no code."""


@dataclass(frozen=True)
class SlideSearch:
    """Criteria of a search for slides.

    Attributes:
        state: the state they are in; None: any.
        code: the code they ended with; None: any; `NO_CODE`: without one.
        text: words that are all part of the slide's name, ignoring case.
    """

    state: str | None = None
    code: str | None = None
    text: str = ""

    def conditions(self, study_id: str) -> list[ColumnElement[bool]]:
        """Conditions that the rows of matching slides meet."""
        conditions = [slide.c.study_id == study_id]
        if self.state is not None:
            conditions.append(slide.c.state == self.state)
        if self.code is not None:
            conditions.append(slide.c.code == self.code if self.code else slide.c.code.is_(None))
        words = self.text.replace("\0", " ").split()[:MAX_WORDS]
        return conditions + [slide.c.slide_id.icontains(word[:MAX_WORD], autoescape=True) for word in words]


@dataclass(frozen=True)
class FoundSlides:
    """Some of the slides that a search found, in manifest order."""

    rows: Sequence[Row[Any]]
    total: int
    """Number of slides found in all."""


def find_slides(ledger: Ledger, study_id: str, wanted: SlideSearch, *, skip: int = 0, limit: int = 50) -> FoundSlides:
    """A page of the matching slides.

    Raises:
        BadManifestError: no such study.
    """
    conditions = wanted.conditions(study_id)
    page = select(slide).where(*conditions).order_by(slide.c.ordinal).offset(skip).limit(limit)
    with ledger.database.read() as connection:
        found(connection, study_id)
        total = connection.scalar(select(func.count()).select_from(slide).where(*conditions))
        return FoundSlides(connection.execute(page).all(), int(total or 0))


def slide_states(ledger: Ledger) -> list[tuple[str, str, str]]:
    """State of every slide in every study: (slide, study, state)."""
    chosen = select(slide.c.slide_id, slide.c.study_id, slide.c.state)
    with ledger.database.read() as connection:
        return [(slide_id, study_id, state) for slide_id, study_id, state in connection.execute(chosen)]


def slides_seen(ledger: Ledger, actor: str) -> set[str]:
    """Slides of all entries of the project's log that name this person.

    Args:
        actor: as in `Change.actor`.

    Raises:
        GemslideError: the ledger is unavailable.
    """
    before = slide_subject("")
    chosen = select(audit.c.subject).where(
        audit.c.study_id == PROJECT_LOG, audit.c.actor == actor, audit.c.subject.startswith(before, autoescape=True)
    )
    with ledger.database.read() as connection:
        return {subject.removeprefix(before) for subject in connection.scalars(chosen.distinct())}


def study_slide_ids(ledger: Ledger, study_id: str) -> frozenset[str]:
    """Names of all slides of a study. Raises BadManifestError if there is no such study."""
    with ledger.database.read() as connection:
        found(connection, study_id)
        return frozenset(connection.scalars(select(slide.c.slide_id).where(slide.c.study_id == study_id)))
