"""The rows of the worklist: which slides a filter leaves, and what one page of them says.

A project may have ten thousand slides. Names come from the folder alone; only the stores of the page shown are
read, and none stays open. What cannot be read is said in its own row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pathology_app.presenters import size_text
from pathology_app.text import READ_ERRORS, as_text, message_of
from pathology_app.tiles.cache import SlideCache

ROWS_PER_PAGE = 50


@dataclass(frozen=True)
class WorklistRow:
    """One slide of the worklist. Of a slide that cannot be read only the id and the note are known."""

    slide_id: str
    thumbnail_url: str | None = None
    size: str | None = None
    mpp: float | None = None
    levels: int | None = None
    tissue_mm2: float | None = None
    models: tuple[str, ...] = ()
    top_score: float | None = None
    note: str = ""
    """What is wrong with the slide's files."""

    def as_dict(self) -> dict[str, Any]:
        """The row as the table takes it."""
        return {
            "thumbnail": self.thumbnail_url,
            "slide": as_text(self.slide_id),
            "note": self.note,
            "size": self.size,
            "mpp": self.mpp,
            "levels": self.levels,
            "tissue_mm2": self.tissue_mm2,
            "models": [as_text(model) for model in self.models],
            "top_score": self.top_score,
        }


@dataclass(frozen=True)
class Page:
    """Some of the slides found. Pages are numbered from 1."""

    number: int
    pages: int
    slide_ids: Sequence[str]


def find_slides(cache: SlideCache, text: str, *, only_predicted: bool) -> tuple[list[str], int]:
    """Slides whose name contains every word of `text`, whatever the case, and how many slides there are.

    Args:
        only_predicted: only slides with predictions; then words may also be parts of their models' names.
    """
    slide_ids, words = cache.project.slide_ids(), text.casefold().split()
    if not only_predicted:
        return [slide_id for slide_id in slide_ids if _has(words, slide_id)], len(slide_ids)
    with_models = ((slide_id, _models(cache, slide_id)) for slide_id in slide_ids)
    return [slide_id for slide_id, models in with_models if models and _has(words, slide_id, *models)], len(slide_ids)


def page_of(slide_ids: Sequence[str], wanted: str) -> Page:
    """The page that a link names; the nearest there is for any other text."""
    pages = max(1, -(-len(slide_ids) // ROWS_PER_PAGE))
    is_number = wanted.isascii() and wanted.isdecimal() and len(wanted) < 9
    number = min(max(1, int(wanted)), pages) if is_number else 1
    first = (number - 1) * ROWS_PER_PAGE
    return Page(number, pages, slide_ids[first : first + ROWS_PER_PAGE])


def read_row(cache: SlideCache, slide_id: str) -> WorklistRow:
    """A slide as one row, damaged or not."""
    root = cache.project.root
    try:
        summary = cache.summary(slide_id)
        models = cache.model_ids(slide_id)
    except READ_ERRORS as error:
        return WorklistRow(slide_id, note=message_of(error, root))
    scores, notes = [], []
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
        levels=summary.levels,
        tissue_mm2=summary.tissue_mm2,
        models=tuple(models),
        top_score=max(scores, default=None),
        note=as_text(" ".join(notes)),
    )


def _models(cache: SlideCache, slide_id: str) -> list[str]:
    try:
        return cache.model_ids(slide_id)
    except READ_ERRORS:  # its row says so where it is shown
        return []


def _has(words: Sequence[str], *names: str) -> bool:
    searched = " ".join(names).casefold()
    return all(word in searched for word in words)
