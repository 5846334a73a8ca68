"""Navigation between study pages. Each step sets the browser's link, so that its Back button works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pathology_app.html.text import as_markdown, message_of
from pathology_app.links.studies import SLIDES_PER_PAGE, StudyLink
from pathology_app.project.served import served_project
from training.foundation.words.counts import counted

Place = st.delta_generator.DeltaGenerator


def current_link() -> StudyLink:
    """Study link that the browser shows now."""
    return StudyLink.of(st.query_params.to_dict())


def go(query: Mapping[str, str]) -> None:
    """Go to the page that a link's query names."""
    st.query_params.from_dict(query)
    st.rerun()


def link_button(place: Place, label: str, query: Mapping[str, str], *, key: str, icon: str | None = None) -> None:
    """Draw a button that leads to another page; its label is Markdown."""
    if place.button(label, key=key, icon=icon, type="tertiary"):
        go(query)


def clicked(event: Any, rows: Sequence[Any]) -> str | None:
    """The slide whose row was clicked in a table of `rows`; None where none was, or the row is gone."""
    cells = event.selection.cells
    return rows[cells[0][0]].slide_id if cells and cells[0][0] < len(rows) else None


def say(error: Exception) -> None:
    """Show an error in one message without folders of this computer."""
    st.error(as_markdown(message_of(error, served_project().root)))


def nearest_page(link: StudyLink, total: int) -> StudyLink:
    """The link, moved to the last page if it names one beyond it."""
    return link.to(page=min(link.page, max(1, -(-total // SLIDES_PER_PAGE))))


def page_buttons(link: StudyLink, total: int, hint: str) -> None:
    """Show which of the matching slides are listed, with buttons to the others.

    Args:
        hint: tells what can be done with the list.
    """
    pages, first = max(1, -(-total // SLIDES_PER_PAGE)), (link.page - 1) * SLIDES_PER_PAGE
    row = st.container(horizontal=True, vertical_alignment="center")
    listed = f"{first + 1:,} to {min(first + SLIDES_PER_PAGE, total):,} of " if pages > 1 else ""
    row.caption(f"{listed}{counted(total, 'slide')}. {hint}")
    if pages > 1:
        for label, to in (("Previous", link.page - 1), ("Next", link.page + 1)):
            if row.button(label, key=f"list_{label}", disabled=not 1 <= to <= pages):
                go(link.to(page=to).query())
