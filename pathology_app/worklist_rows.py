"""The rows of the worklist: which slides a filter leaves, and what one page of them says.

A project may have ten thousand slides. Names come from the folder alone; only the stores of the page shown are
read, and none stays open. What cannot be read is said in its own row.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pathology_app.html_tables import Column, Link, Picture
from pathology_app.presenters import size_text
from pathology_app.text import READ_ERRORS, as_text, message_of
from pathology_app.tiles.cache import SlideCache
from pathology_app.worklist_link import WorklistLink

ROWS_PER_PAGE = 50


@dataclass(frozen=True)
class WorklistRow:
    """One slide of the worklist. Of a slide that cannot be read only the id and the note are known."""

    slide_id: str
    thumbnail_url: str | None = None
    size: str | None = None
    mpp: float | None = None
    tissue_mm2: float | None = None
    models: tuple[str, ...] = ()
    top_score: float | None = None
    note: str = ""
    """What is wrong with the slide's files, or why nothing of a model is shown."""
    reading: str = ""
    """How the reader who is signed in stands to it."""

    def cells(self, link: WorklistLink) -> tuple[object, ...]:
        """The row as `COLUMNS` take it; its link leads to the slide, and knows the way back."""
        return (
            Picture(self.thumbnail_url) if self.thumbnail_url else None,
            Link(self.slide_id, {**link.query(), "slide": self.slide_id}),
            self.note,
            self.size,
            None if self.mpp is None else f"{self.mpp:.4g}",
            None if self.tissue_mm2 is None else f"{self.tissue_mm2:.1f}",
            self.reading,
            ", ".join(self.models),
            None if self.top_score is None else f"{self.top_score:.2f}",
        )


COLUMNS = (
    Column("Picture", "fixed"),
    Column("Slide"),
    Column("Note", "long"),
    Column("Size"),
    Column("µm/px", "number"),
    Column("Tissue mm²", "number"),
    Column("Reading"),
    Column("Predictions of"),
    Column("Highest hotspot", "number"),
)


@dataclass(frozen=True)
class Page:
    """Some of the slides found. Pages are numbered from 1."""

    number: int
    pages: int
    slide_ids: Sequence[str]


def find_slides(
    cache: SlideCache, text: str, *, only_predicted: bool, hidden: Container[str] = ()
) -> tuple[list[str], int]:
    """Slides whose name contains every word of `text`, whatever the case, and how many slides there are.

    Args:
        only_predicted: only slides with predictions, and those of which that cannot be known; words may then also be
            parts of their models' names.
        hidden: slides of which nothing of a model may be told.
    """
    slide_ids, words = cache.project.slide_ids(), text.casefold().split()
    if not only_predicted:
        return [slide_id for slide_id in slide_ids if _has(words, slide_id)], len(slide_ids)
    with_models = ((slide_id, None if slide_id in hidden else _models(cache, slide_id)) for slide_id in slide_ids)
    found = [slide_id for slide_id, models in with_models if models != [] and _has(words, slide_id, *(models or ()))]
    return found, len(slide_ids)


def page_of(slide_ids: Sequence[str], wanted: int) -> Page:
    """A page, or the last there is."""
    pages = max(1, -(-len(slide_ids) // ROWS_PER_PAGE))
    number = min(wanted, pages)
    first = (number - 1) * ROWS_PER_PAGE
    return Page(number, pages, slide_ids[first : first + ROWS_PER_PAGE])


def read_row(cache: SlideCache, slide_id: str, *, hidden: str = "", reading: str = "") -> WorklistRow:
    """A slide as one row, damaged or not.

    Args:
        hidden: why nothing of a model may be shown; "" where it may.
        reading: how the reader who looks stands to it.
    """
    root = cache.project.root
    try:
        summary = cache.summary(slide_id)
        models = [] if hidden else cache.model_ids(slide_id)
    except READ_ERRORS as error:
        return WorklistRow(slide_id, note=message_of(error, root), reading=reading)
    scores, notes = [], [hidden] if hidden else []
    for model_id in models:
        try:
            scores += [hotspot["score"] for hotspot in cache.hotspots(slide_id, model_id) or ()]
        except READ_ERRORS as error:
            notes.append(f"Hotspots unknown: {message_of(error, root)}")
    return WorklistRow(
        slide_id=slide_id,
        thumbnail_url=f"/thumbnails/{quote(slide_id)}.jpg?v={summary.version}",
        size=size_text(summary.size_wh_px0, summary.mpp0),
        mpp=summary.mpp0,
        tissue_mm2=summary.tissue_mm2,
        models=tuple(models),
        top_score=max(scores, default=None),
        note=as_text(" ".join(notes)),
        reading=reading,
    )


def _models(cache: SlideCache, slide_id: str) -> list[str] | None:
    """None where they cannot be known; the slide's row says why."""
    try:
        return cache.model_ids(slide_id)
    except READ_ERRORS:
        return None


def _has(words: Sequence[str], *names: str) -> bool:
    searched = " ".join(names).casefold()
    return all(word in searched for word in words)
