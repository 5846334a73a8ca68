"""How far a study is, again every few seconds: slides by state, tasks by stage, workers, and the slides themselves."""

from __future__ import annotations

import streamlit as st

from pathology_app import html_tables, study_rows
from pathology_app.app_pages.study_heading import draw_heading
from pathology_app.app_pages.study_navigation import clicked, go, nearest_page, page_buttons, say
from pathology_app.study_ledger import StudyLedger
from pathology_app.study_link import MAX_FIND, SLIDES_PER_PAGE, StudyLink
from pathology_app.text import READ_ERRORS, as_markdown
from pathology_app.tiles.cache import current_cache
from pipeline.study.ledger import Ledger, StudyRow
from pipeline.study.progress import Progress
from pipeline.study.rows import STUDY_SUBJECT
from pipeline.study.search import SlideSearch, find_slides
from pipeline.study.tables import SLIDE_STATES

REFRESH_S = 5.0
MAX_WORKERS_SHOWN = 50
MAX_LOG_SHOWN = 20
ALL = "all"

_COLUMNS = {
    "slide": st.column_config.TextColumn("Slide", width=150),
    "state": st.column_config.TextColumn("State", width=90),
    "at": st.column_config.TextColumn("Stage", width=230),
    "code": st.column_config.TextColumn("Code", width=110),
    "reason": st.column_config.TextColumn("Reason", width=340),
    "site": st.column_config.TextColumn("Site", width=110),
    "scanner": st.column_config.TextColumn("Scanner", width=140),
    "ended": st.column_config.TextColumn("Ended (UTC)", width=150),
}


def draw(found: StudyLedger, ledger: Ledger, link: StudyLink) -> None:
    """Draw the overview of the study that the link names. Raises: as the ledger."""
    row = ledger.study(link.study)
    progress = found.progress(ledger, link.study)
    draw_heading(found, ledger, row, link, progress.counts)
    # A study that is over does not change by itself.
    every_s = None if progress.counts.is_over else REFRESH_S
    st.fragment(_live, run_every=every_s)(found, link, every_s)
    with st.expander("Log of the study: who began, paused, resumed and amended it, and why"):
        entries = ledger.history(link.study, STUDY_SUBJECT, newest=MAX_LOG_SHOWN)
        st.html(study_rows.history_html(entries, label="Log of the study"))


def _live(found: StudyLedger, link: StudyLink, every_s: float | None) -> None:
    """What changes while workers work. A ledger that is away for a while is said, and asked again.

    Args:
        link: as it was when the page was drawn; what a browser says with a timer's run can be older than that.
    """
    try:
        ledger = found.ledger()
        if ledger is not None:
            _numbers(ledger, ledger.study(link.study), found.progress(ledger, link.study), every_s)
            _filters(link)
            _slides(ledger, link)
    except READ_ERRORS as error:
        say(error)


def _numbers(ledger: Ledger, row: StudyRow, progress: Progress, every_s: float | None) -> None:
    counts, held = progress.counts, ledger.held(row.study_id, limit=MAX_WORKERS_SHOWN)
    again = "" if every_s is None else f", again every {every_s:.0f} s"
    st.html(
        html_tables.facts(study_rows.facts(progress))
        + html_tables.beside({"Slides": study_rows.states_html(counts), "Tasks": study_rows.tasks_html(progress)})
    )
    st.caption(f"As of {study_rows.time_text(progress.utc)} UTC{again}.")
    if held:
        st.html(html_tables.beside({f"Workers ({progress.workers})": study_rows.workers_html(held)}))
    elif row.state == "paused":
        st.info("The study is paused: workers take no tasks.")
    elif not counts.is_over:
        st.info(f"Nobody works on this study. Start workers with `gemslide study run {as_markdown(row.study_id)}`.")


def _filters(link: StudyLink) -> None:
    """Which slides are listed. The link says that, so that the browser's Back changes it; a widget has a key for each
    link that it stands for, and nothing of one link is left in another."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    find = left.text_input(
        "Slides", link.find, max_chars=MAX_FIND, key=f"study_find {link.find}", placeholder="part of a slide's name"
    )
    states = (ALL, *SLIDE_STATES)
    chosen = right.selectbox("State", states, states.index(link.state or ALL), key=f"study_state {link.state}")
    state = None if chosen == ALL else chosen
    if (find, state) != (link.find, link.state):
        go(link.to(find=find, state=state, page=1).query())


def _slides(ledger: Ledger, link: StudyLink) -> None:
    """The slides of the study, as the link filters them; a click opens one."""
    wanted = SlideSearch(link.state, link.code, link.find)
    page = find_slides(ledger, link.study, wanted, skip=(link.page - 1) * SLIDES_PER_PAGE, limit=SLIDES_PER_PAGE)
    if not page.rows and page.total:
        go(nearest_page(link, page.total).query())
    page_buttons(link, page.total, "Click a row to see what was done to the slide.")
    tasks = ledger.tasks(link.study, *(row.slide_id for row in page.rows))
    rows = study_rows.slide_rows(page.rows, tasks, current_cache().project.root)
    event = st.dataframe(
        rows,
        column_config=_COLUMNS,
        column_order=study_rows.filled(rows),
        hide_index=True,
        placeholder="",
        on_select="rerun",
        selection_mode="single-cell",
        key=f"slides {link.query()}",
    )
    if slide_id := clicked(event, page.rows):
        go(StudyLink(link.study, slide=slide_id).query())
