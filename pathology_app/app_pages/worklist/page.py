"""The worklist: every slide of the project, a page at a time; a row links to its slide."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from pathology_app.access.visibility import attended_of, visible
from pathology_app.app_pages.declared import fragment
from pathology_app.app_pages.navigation import link_button, say
from pathology_app.app_pages.runs.page import runs_link
from pathology_app.app_pages.studies.page import studies_link
from pathology_app.app_pages.worklist import lists as worklist_lists
from pathology_app.app_pages.worklist.filters import draw_filters, go
from pathology_app.app_pages.worklist.rows import WorklistRow, read_row, without_predictions
from pathology_app.html.tables import link_html
from pathology_app.html.text import READ_ERRORS, as_markdown
from pathology_app.links.worklist import GALLERY, ROWS_PER_PAGE, WorklistLink
from pathology_app.people.person import Person
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from pathology_app.readings.status import NextUnread, ReadingStatuses, next_unread, reading_states
from pathology_app.slides.cache import current_cache
from pathology_app.slides.index.index import SlideIndex, current_index
from pathology_app.slides.index.table import Case, Listed
from pathology_app.slides.index.wanted import Wanted
from pipeline.review import slides_with_notices
from training.foundation.words.counts import counted

WAIT_S = 0.5
"""Time to read a small project, so that its list is complete when first drawn."""
AGAIN_S = 2.0
"""Interval between redraws while the index is still being filled."""
_HIDDEN = "Predictions are hidden: readings for study {} are not signed."
CASES_PER_PAGE, SLIDES_PER_CASE = 20, 12
NOTICES_SHOWN = 8


@dataclass(frozen=True)
class WorklistView:
    """One person's view of the worklist."""

    link: WorklistLink
    index: SlideIndex
    readings: ReadingStatuses | None
    visibility: Visibility
    only: frozenset[str] | None = None
    """Slides that the person may see; None: all."""

    @property
    def wanted(self) -> Wanted:
        states, words = (self.readings.states, self.readings.statuses) if self.readings else ({}, ())
        wanted = self.link.wanted(states, words, self.visibility.predicted)
        return replace(wanted, labelled=self.visibility.labelled, only=self.only)

    @property
    def number(self) -> int:
        """Number of slides that the person may see."""
        return len(self.index.table) if self.only is None else len(self.only)


def page(_: st.Page, visibility: Visibility) -> None:
    """Draw the slides that the link names."""
    link = WorklistLink.of(st.query_params.to_dict())
    title, unread, studies = st.columns([2, 1, 1.4], vertical_alignment="center")
    title.header("Worklist", anchor=False)
    links = studies.container(horizontal=True, horizontal_alignment="right")
    filters, slides = st.container(), st.empty()
    slides.html(worklist_lists.LOADING)
    try:
        index = current_index()
        index.look(wait_s=WAIT_S)
        project, person = served_project(), current_person()
        only = None if person.slides is None else frozenset(visible(person, index.table.slide_ids))
        view = WorklistView(link, index, reading_states(project, person), visibility, only)
        due = next_unread(project, person)
        changed = _changed_by_others(view, person)
    except READ_ERRORS as error:  # then it is not known what may be shown
        slides.empty()
        runs_link(links, visibility)
        say(error)
        return
    studies_link(links)
    runs_link(links, visibility)
    if not view.number:
        slides.info(
            "No slides in this project. Add some with `gemslide ingest`, "
            "or create a demonstration project with `gemslide demo`."
        )
        return
    if changed:
        filters.html(_notice(changed, link))
    with filters:
        draw_filters(link, index.table, view.readings, view.visibility.predicted, only)
    if due is not None:
        _due(unread, due)
    elif view.readings:
        _next_unread(unread, view)
    with slides.container():
        # Slides still being read appear without a reload.
        fragment(_slides, run_every=None if index.is_swept else AGAIN_S)(view, index.is_swept)


def _changed_by_others(view: WorklistView, person: Person) -> list[str]:
    """Visible slides with changes by others to the person's annotations, until the person has noted them."""
    ledger = current_study_ledger().ledger()
    slide_ids = slides_with_notices(ledger, person.actor) if ledger else []
    return [
        slide_id
        for slide_id in slide_ids
        if (view.only is None or slide_id in view.only) and view.visibility.hides_assessments(slide_id) is None
    ]


def _notice(slide_ids: list[str], link: WorklistLink) -> str:
    links = [link_html(slide_id, {**link.query(), "slide": slide_id}) for slide_id in slide_ids[:NOTICES_SHOWN]]
    more = f" and {len(slide_ids) - NOTICES_SHOWN:,} more" if len(slide_ids) > NOTICES_SHOWN else ""
    return f'<p class="gs-note">Others have changed annotations of yours on {", ".join(links)}{more}.</p>'


def _due(place: st.delta_generator.DeltaGenerator, due: NextUnread) -> None:
    """Link to the reading that can be read now, with the number of those that cannot."""
    if due.query is not None:
        label = f"Next unread ({due.num_now:,})"
        link_button(place, label, due.query, key="next_unread", icon=":material/visibility:")
    later = due.later_text
    if later:
        place.caption(f"{later}." if due.query is not None else f"Nothing to read now: {later}.")


def _next_unread(place: st.delta_generator.DeltaGenerator, view: WorklistView) -> None:
    """Link to the first slide of the list that the person has not opened."""
    assert view.readings
    wanted = replace(view.wanted, state=view.readings.statuses[0])
    first = view.index.table.find(wanted, skip=0, limit=1)
    if first:
        query = {**view.link.query(), "slide": first[0].slide_id}
        number = view.index.table.count(wanted)
        place.html(link_html(f"Next {wanted.state} ({number:,})", query, "gs-go gs-button"))
    else:
        place.caption(f"No slide in this list is {wanted.state}.")


def _slides(view: WorklistView, was_swept: bool) -> None:
    """Draw the list, and say what is not known yet."""
    _list(view)
    if view.index.is_swept and not was_swept:
        st.rerun()  # after the buttons: a click that came with this run would be lost


def _list(view: WorklistView) -> None:
    """Draw one page of the list, and the buttons for the others."""
    table, wanted, link = view.index.table, view.wanted, view.link
    num_matches = table.count(wanted)
    caption = [f"{num_matches:,} of {counted(view.number, 'slide')}."]
    if table.num_unread and view.only is None:
        caption.append(f"Still loading {counted(table.num_unread, 'slide')}: order and filters may still change.")
    if table.cohort_note:
        # The note may mention slides that the person may not see.
        why = f": {as_markdown(table.cohort_note)}" if view.only is None else "."
        caption.append(f"Cases, labels and sites are unavailable{why}")
    if link.by_case:
        _by_case(view, " ".join(caption))
        return
    pages = max(1, -(-num_matches // ROWS_PER_PAGE))
    number = min(link.page, pages)
    _show_pages(link, number, pages, " ".join(caption))
    rows = _rows(view, table.find(wanted, skip=(number - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE))
    if rows:
        st.html(_legend(view, rows) + worklist_lists.slides_html(rows, link))
    else:
        _nothing(link)


def _by_case(view: WorklistView, caption: str) -> None:
    table, wanted, link = view.index.table, view.wanted, view.link
    num_cases = table.count_cases(wanted)
    pages = max(1, -(-num_cases // CASES_PER_PAGE))
    number = min(link.page, pages)
    _show_pages(link, number, pages, f"{counted(num_cases, 'case')}, {caption}")
    cases = table.find_cases(wanted, skip=(number - 1) * CASES_PER_PAGE, limit=CASES_PER_PAGE)
    shown = [(case, _rows(view, _list_case(view, case))) for case in cases]
    rows = [row for _, case_rows in shown for row in case_rows]
    if rows:
        st.html(_legend(view, rows) + worklist_lists.cases_html(shown, link))
    else:
        _nothing(link)


def _list_case(view: WorklistView, case: Case) -> list[Listed]:
    if case.case_id is None:
        wanted = replace(view.wanted, slide_id=case.slide_id)
    else:
        wanted = replace(view.wanted, case_id=case.case_id)
    return view.index.table.find(wanted, skip=0, limit=SLIDES_PER_CASE)


def _rows(view: WorklistView, listed: list[Listed]) -> list[WorklistRow]:
    cache, readings, visibility = current_cache(), view.readings, view.visibility
    readers = readings.readers([slide.slide_id for slide in listed]) if readings else {}
    rows = []
    for slide in listed:
        facts, blinded = view.index.facts(slide), visibility.hides_predictions(slide.slide_id)
        if blinded:
            facts = without_predictions(facts, _HIDDEN.format(blinded.study_id))
        elif facts.slide_models and (visibility.person.slides is not None or visibility.hidden):
            shown = tuple(attended_of(cache, visibility, slide.slide_id))
            answers = tuple(answer for answer in facts.answers if answer.model_id in shown)
            facts = facts.model_copy(update={"slide_models": shown, "answers": answers})
        word = readings.text(slide.slide_id, slide.reading) if readings else ""
        rows.append(read_row(cache, slide, facts, view.link, reading=word, readers=readers.get(slide.slide_id, "")))
    return rows


def _legend(view: WorklistView, rows: list[WorklistRow]) -> str:
    return worklist_lists.heat_legend(rows) if view.link.view == GALLERY or any(row.heat for row in rows) else ""


def _nothing(link: WorklistLink) -> None:
    if link.filters:
        st.info("No slide matches these filters.")
    else:
        st.info("No slide name contains all these words.")


def _show_pages(link: WorklistLink, number: int, pages: int, caption: str) -> None:
    """Draw the number of slides, and the buttons to the other pages."""
    row = st.container(horizontal=True, vertical_alignment="center")
    row.caption(caption)
    if pages == 1:
        return
    row.caption(f"Page {number:,} of {pages:,}", width="content")
    for label, to in (("Previous", number - 1), ("Next", number + 1)):
        if row.button(label, key=f"to_{label}", disabled=not 1 <= to <= pages):
            go(link.to(page=to))
            st.rerun()  # the whole page: this fragment would show the same link again
