"""The worklist: every slide of the project, a page at a time; a row leads to its slide."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from pathology_app import html_tables
from pathology_app.access.people import current_person
from pathology_app.app_pages.runs import runs_link
from pathology_app.app_pages.studies import studies_link
from pathology_app.app_pages.study_navigation import link_button, say
from pathology_app.blinding import hidden_slides
from pathology_app.reading_state import next_unread, reading_state
from pathology_app.text import READ_ERRORS
from pathology_app.tiles.cache import SlideCache, current_cache
from pathology_app.viewer.component import search_box
from pathology_app.worklist_link import MAX_FIND, WorklistLink
from pathology_app.worklist_rows import COLUMNS, Page, find_slides, page_of, read_row
from pipeline.study import Blinded

_HIDDEN = "Predictions are hidden: your reading for study {} is not signed."


def page() -> None:
    """Draw the slides that the link names."""
    cache, link = current_cache(), WorklistLink.of(st.query_params.to_dict())
    title, unread, studies = st.columns([3, 1, 1], vertical_alignment="bottom")
    title.header("Worklist", anchor=False)
    with unread:
        _next_unread(cache)
    ways = studies.container(horizontal=True, horizontal_alignment="right")
    studies_link(ways)
    runs_link(ways)
    _filters(link)
    try:
        hidden = hidden_slides(cache.project, current_person())
    except READ_ERRORS as error:  # nobody knows what may be shown
        say(error)
        return
    slide_ids, total = find_slides(cache, link.find, only_predicted=link.only_predicted, hidden=hidden)
    if not total:
        st.info(
            "No slides in this project. Bring some in with `gemslide ingest`, "
            "or make a demonstration project with `gemslide demo`."
        )
        return
    shown = page_of(slide_ids, link.page)
    _show_pages(shown, link, f"{len(slide_ids)} of {total} slides.")
    _show_table(cache, shown, link, hidden)


def _next_unread(cache: SlideCache) -> None:
    """The way to the reading that is due, for a reader who is signed in."""
    try:
        query = next_unread(cache.project, current_person())
    except READ_ERRORS:
        return  # said below
    if query is not None:
        link_button(st.container(), "Next unread", query, key="next_unread", icon=":material/visibility:")


def _filters(link: WorklistLink) -> None:
    """Which slides are listed. The link says that, so that Back, a reload and a colleague find the same."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    what = "part of a slide or model name" if link.only_predicted else "part of a slide's name"
    with left:
        search_box(
            "Filter",
            link.find,
            lambda find: _go(link.to(find=find, page=1)),
            key="filter",
            placeholder=what,
            max_length=MAX_FIND,
        )
    right.checkbox(
        "Only slides with predictions",
        link.only_predicted,
        key=f"only_predicted {link.only_predicted}",
        on_change=lambda: _go(link.to(only_predicted=not link.only_predicted, page=1)),
    )


def _go(link: WorklistLink) -> None:
    st.query_params.from_dict(link.query())


def _show_pages(shown: Page, link: WorklistLink, caption: str) -> None:
    """How many slides, and the way to the other pages."""
    if shown.pages == 1:
        st.caption(caption)
        return
    left, number, previous, following = st.columns([6, 1.2, 1, 1], vertical_alignment="center")
    left.caption(caption)
    number.caption(f"Page {shown.number} of {shown.pages}")
    for place, label, to in ((previous, "Previous", shown.number - 1), (following, "Next", shown.number + 1)):
        is_there = 1 <= to <= shown.pages
        place.button(
            label, key=f"to_{label}", disabled=not is_there, on_click=_go, args=(link.to(page=to),), width="stretch"
        )


def _show_table(cache: SlideCache, shown: Page, link: WorklistLink, hidden: Mapping[str, Blinded]) -> None:
    states = reading_state(cache.project, current_person(), shown.slide_ids)
    rows = [
        read_row(
            cache,
            slide_id,
            hidden=_HIDDEN.format(hidden[slide_id].study_id) if slide_id in hidden else "",
            reading=states[slide_id].text if slide_id in states else "",
        ).cells(link)
        for slide_id in shown.slide_ids
    ]
    if rows:
        st.html(html_tables.table(COLUMNS, rows, label="Slides"))
    else:
        st.info("No slide's name holds all these words.")
