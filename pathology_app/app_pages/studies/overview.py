"""Progress of a study, redrawn every few seconds: slides by state, tasks by stage, workers, and the slides."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages.declared import fragment, say_hidden
from pathology_app.app_pages.navigation import go, nearest_page, page_buttons, say
from pathology_app.app_pages.studies import lists as study_lists
from pathology_app.app_pages.studies import rows as study_rows
from pathology_app.app_pages.studies.heading import draw_heading
from pathology_app.html import tables as html_tables
from pathology_app.html.text import READ_ERRORS, as_markdown, time_text
from pathology_app.links.link import MAX_FIND
from pathology_app.links.studies import SLIDES_PER_PAGE, StudyLink
from pathology_app.project.ledger import StudyLedger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from pathology_app.viewer.component import search_box
from pipeline.ledger.errors import LedgerFullError
from pipeline.ledger.ledger import Ledger, StudyRow
from pipeline.ledger.rows import STUDY_SUBJECT
from pipeline.ledger.tables import SLIDE_STATES
from pipeline.study.outcomes.progress import Progress
from pipeline.study.outcomes.search import SlideSearch, find_slides

REFRESH_S = 5.0
MAX_WORKERS_SHOWN = 50
MAX_LOG_SHOWN = 20
ALL = "all"
_FIND, _WANTED = "study_find", "study_wanted"


def draw(study_ledger: StudyLedger, ledger: Ledger, link: StudyLink, visibility: Visibility) -> None:
    """Draw the overview of the study that the link names. Raises: as the ledger."""
    row = ledger.study(link.study)
    progress = study_ledger.progress(ledger, link.study)
    draw_heading(study_ledger, ledger, row, link, progress.counts, visibility)
    if visibility.first is not None:  # stages name models
        say_hidden(visibility.first)
        return
    # A study that is over does not change by itself.
    every_s = None if progress.counts.is_over else REFRESH_S
    fragment(_live, run_every=every_s)(study_ledger, link, every_s)
    with st.expander("Log of the study: who began, paused, resumed or amended it, and why"):
        entries = ledger.history(link.study, STUDY_SUBJECT, newest=MAX_LOG_SHOWN)
        st.html(study_rows.history_html(entries, label="Log of the study"))


def _live(study_ledger: StudyLedger, link: StudyLink, every_s: float | None) -> None:
    """Draw the part that changes while workers work. An unavailable ledger is reported and tried again.

    Args:
        link: as it was when the page was drawn; the browser's link, which a timed rerun gets, can be older.
    """
    try:
        ledger = study_ledger.ledger()
        if ledger is not None:
            if trouble := ledger.database.trouble():
                say(LedgerFullError(trouble))
            _numbers(ledger, ledger.study(link.study), study_ledger.progress(ledger, link.study), every_s)
            _filters(link)
            _slides(ledger, link)
    except READ_ERRORS as error:
        say(error)


def _numbers(ledger: Ledger, row: StudyRow, progress: Progress, every_s: float | None) -> None:
    counts, held = progress.counts, ledger.held(row.study_id, limit=MAX_WORKERS_SHOWN)
    again = "" if every_s is None else f", updated every {every_s:.0f} s"
    st.html(
        html_tables.facts(study_rows.facts(progress))
        + html_tables.beside({"Slides": study_rows.states_html(counts), "Tasks": study_rows.tasks_html(progress)})
    )
    st.caption(f"As of {time_text(progress.utc)} UTC{again}.")
    if held:
        st.html(html_tables.beside({f"Workers ({progress.workers})": study_rows.workers_html(held)}))
    elif row.state == "paused":
        st.info("The study is paused: workers take no tasks.")
    elif not counts.is_over:
        st.info(f"No workers are running. Start some with `gemslide study run {as_markdown(row.study_id)}`.")


def _filters(link: StudyLink) -> None:
    """Draw the filters. The link holds them, so that the browser's Back changes them; a widget's key contains the
    link's value, so that no state of one link is left in another."""
    if wanted := st.session_state.pop(_WANTED, None):
        go(wanted)  # here, and not when it was typed: a callback reruns only this part of the page
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        search_box(
            "Slides",
            link.find,
            lambda find: st.session_state.update({_WANTED: link.to(find=find, page=1).query()}),
            key=_FIND,
            placeholder="part of a slide's name",
            max_length=MAX_FIND,
        )
    states = (ALL, *SLIDE_STATES)
    chosen = right.selectbox("State", states, states.index(link.state or ALL), key=f"study_state {link.state}")
    state = None if chosen == ALL else chosen
    if state != link.state:
        go(link.to(state=state, page=1).query())


def _slides(ledger: Ledger, link: StudyLink) -> None:
    """Draw the study's slides, as the link filters them; a row links to its slide."""
    wanted = SlideSearch(link.state, link.code, link.find)
    page = find_slides(ledger, link.study, wanted, skip=(link.page - 1) * SLIDES_PER_PAGE, limit=SLIDES_PER_PAGE)
    if not page.rows and page.total:
        go(nearest_page(link, page.total).query())
    page_buttons(link, page.total, "Click a slide to see its history.")
    tasks = ledger.tasks(link.study, *(row.slide_id for row in page.rows))
    st.html(study_lists.slides_html(link.study, page.rows, tasks, served_project().root))
