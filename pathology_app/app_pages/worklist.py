"""The worklist: every slide of the project, a page at a time; a row leads to its slide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import streamlit as st

from pathology_app import worklist_lists
from pathology_app.access.people import current_person
from pathology_app.access.seeing import visible
from pathology_app.app_pages.runs import runs_link
from pathology_app.app_pages.studies import studies_link
from pathology_app.app_pages.study_navigation import link_button, say
from pathology_app.app_pages.worklist_filters import draw_filters, go
from pathology_app.blinding import hidden_slides
from pathology_app.html_tables import link_html
from pathology_app.reading_state import next_unread
from pathology_app.reading_states import ReadingStates, reading_states
from pathology_app.slide_index.index import SlideIndex, current_index
from pathology_app.slide_index.table import Case, Listed
from pathology_app.slide_index.wanted import Wanted
from pathology_app.text import READ_ERRORS, as_markdown
from pathology_app.tiles.cache import current_cache
from pathology_app.worklist_link import GALLERY, WorklistLink
from pathology_app.worklist_rows import ROWS_PER_PAGE, WorklistRow, read_row, without_predictions
from pipeline.study import Blinded

WAIT_S = 0.5
"""For a small project to be read: its first picture is then its last."""
AGAIN_S = 2.0
"""From one look at an index that is still being filled to the next."""
_HIDDEN = "Predictions are hidden: your reading for study {} is not signed."
CASES_PER_PAGE, SLIDES_PER_CASE = 20, 12


@dataclass(frozen=True)
class Look:
    """What one person wants to see."""

    link: WorklistLink
    index: SlideIndex
    readings: ReadingStates | None
    hidden: Mapping[str, Blinded]
    """Slides of which nothing of a model may be shown."""
    only: frozenset[str] | None = None
    """Slides that the person may see; None: all."""

    @property
    def wanted(self) -> Wanted:
        states, words = (self.readings.states, self.readings.words) if self.readings else ({}, ())
        return replace(self.link.wanted(states, words, self.hidden), only=self.only)

    @property
    def number(self) -> int:
        """Of slides that the person may see."""
        return len(self.index.table) if self.only is None else len(self.only)


def page() -> None:
    """Draw the slides that the link names."""
    link = WorklistLink.of(st.query_params.to_dict())
    title, unread, studies = st.columns([2, 1, 1.4], vertical_alignment="center")
    title.header("Worklist", anchor=False)
    ways = studies.container(horizontal=True, horizontal_alignment="right")
    filters, slides = st.container(), st.empty()
    slides.html(worklist_lists.LOADING)
    try:
        index = current_index()
        index.look(wait_s=WAIT_S)
        project, person = current_cache().project, current_person()
        only = None if person.slides is None else frozenset(visible(person, index.table.slide_ids))
        look = Look(link, index, reading_states(project, person), hidden_slides(project, person), only)
        due = next_unread(project, person)
    except READ_ERRORS as error:  # then nobody knows what may be shown
        slides.empty()
        runs_link(ways)
        say(error)
        return
    studies_link(ways)
    runs_link(ways)
    if not look.number:
        slides.info(
            "No slides in this project. Bring some in with `gemslide ingest`, "
            "or make a demonstration project with `gemslide demo`."
        )
        return
    with filters:
        draw_filters(link, index.table, look.readings, look.hidden, only)
    if due is not None:
        link_button(unread, "Next unread", due, key="next_unread", icon=":material/visibility:")
    elif look.readings:
        _next_unread(unread, look)
    with slides.container():
        # What is still being read comes in by itself.
        st.fragment(_slides, run_every=None if index.is_swept else AGAIN_S)(look, index.is_swept)


def _next_unread(place: st.delta_generator.DeltaGenerator, look: Look) -> None:
    """The way to the first slide of the list that the person has not opened."""
    assert look.readings
    wanted = replace(look.wanted, state=look.readings.words[0])
    found = look.index.table.find(wanted, skip=0, limit=1)
    if found:
        query = {**look.link.query(), "slide": found[0].slide_id}
        number = look.index.table.count(wanted)
        place.html(link_html(f"Next {wanted.state} ({number:,})", query, "gs-go gs-button"))
    else:
        place.caption(f"None of these is {wanted.state}.")


def _slides(look: Look, was_swept: bool) -> None:
    """The list, and what is not known yet."""
    if look.index.is_swept and not was_swept:
        st.rerun()
    table, wanted, link = look.index.table, look.wanted, look.link
    found = table.count(wanted)
    said = [f"{found:,} of {look.number:,} slides."]
    if table.num_unread and look.only is None:
        said.append(f"Still reading {table.num_unread:,} slides: what is sorted and filtered by may change.")
    if table.cohort_note:
        said.append(f"Cases, labels and sites are not known: {as_markdown(table.cohort_note)}")
    if link.by_case:
        _by_case(look, " ".join(said))
        return
    pages = max(1, -(-found // ROWS_PER_PAGE))
    number = min(link.page, pages)
    _show_pages(link, number, pages, " ".join(said))
    rows = _rows(look, table.find(wanted, skip=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE))
    if rows:
        st.html(_legend(look, rows) + worklist_lists.slides_html(rows, link))
    else:
        _nothing(link)


def _by_case(look: Look, said: str) -> None:
    table, wanted, link = look.index.table, look.wanted, look.link
    found = table.count_cases(wanted)
    pages = max(1, -(-found // CASES_PER_PAGE))
    number = min(link.page, pages)
    _show_pages(link, number, pages, f"{found:,} {'case' if found == 1 else 'cases'}, {said}")
    cases = table.find_cases(wanted, skip=(number - 1) * CASES_PER_PAGE, limit=CASES_PER_PAGE)
    shown = [(case, _rows(look, _of_case(look, case))) for case in cases]
    rows = [row for _, of_case in shown for row in of_case]
    if rows:
        st.html(_legend(look, rows) + worklist_lists.cases_html(shown, link))
    else:
        _nothing(link)


def _of_case(look: Look, case: Case) -> list[Listed]:
    if case.case_id is None:
        wanted = replace(look.wanted, slide_id=case.slide_id)
    else:
        wanted = replace(look.wanted, case_id=case.case_id)
    return look.index.table.find(wanted, skip=0, limit=SLIDES_PER_CASE)


def _rows(look: Look, listed: list[Listed]) -> list[WorklistRow]:
    cache, readings = current_cache(), look.readings
    readers = readings.readers([each.slide_id for each in listed]) if readings else {}
    rows = []
    for each in listed:
        facts, blinded = look.index.facts(each), look.hidden.get(each.slide_id)
        if blinded:
            facts = without_predictions(facts, _HIDDEN.format(blinded.study_id))
        word = readings.text(each.slide_id, each.reading) if readings else ""
        rows.append(read_row(cache, each, facts, look.link, reading=word, readers=readers.get(each.slide_id, "")))
    return rows


def _legend(look: Look, rows: list[WorklistRow]) -> str:
    return worklist_lists.heat_legend(rows) if look.link.view == GALLERY or any(row.heat for row in rows) else ""


def _nothing(link: WorklistLink) -> None:
    if link.filters:
        st.info("No slide passes these filters.")
    else:
        st.info("No slide's name holds all these words.")


def _show_pages(link: WorklistLink, number: int, pages: int, caption: str) -> None:
    """How many slides, and the way to the other pages."""
    row = st.container(horizontal=True, vertical_alignment="center")
    row.caption(caption)
    if pages == 1:
        return
    row.caption(f"Page {number:,} of {pages:,}", width="content")
    for label, to in (("Previous", number - 1), ("Next", number + 1)):
        if row.button(label, key=f"to_{label}", disabled=not 1 <= to <= pages):
            go(link.to(page=to))
            st.rerun()  # the whole page: this fragment would show the same link again
