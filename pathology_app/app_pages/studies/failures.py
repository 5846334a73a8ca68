"""Slides that ended without a result, by code: how many, why, what to do, and a form to retry them."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages.navigation import clicked, go, nearest_page, page_buttons
from pathology_app.app_pages.studies import rows as study_rows
from pathology_app.app_pages.studies.actions import Chosen, retry_form
from pathology_app.app_pages.studies.heading import draw_heading
from pathology_app.html.text import as_markdown
from pathology_app.links.studies import SLIDES_PER_PAGE, StudyLink
from pathology_app.project.ledger import StudyLedger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from pipeline.ledger.ledger import Ledger
from pipeline.study.outcomes.failures import Failures, failures_of
from pipeline.study.outcomes.search import SlideSearch, find_slides

_COLUMNS = {
    "slide": st.column_config.TextColumn("Slide", width=150),
    "reason": st.column_config.TextColumn("Reason", width=560),
    "at": st.column_config.TextColumn("Ended at", width=190),
    "site": st.column_config.TextColumn("Site", width=110),
    "scanner": st.column_config.TextColumn("Scanner", width=140),
    "ended": st.column_config.TextColumn("Ended (UTC)", width=150),
}


def draw(study_ledger: StudyLedger, ledger: Ledger, link: StudyLink, visibility: Visibility) -> None:
    """Draw the failures of the study that the link names, or one group of them. Raises: as the ledger."""
    row = ledger.study(link.study)
    draw_heading(study_ledger, ledger, row, link, study_ledger.progress(ledger, link.study).counts, visibility)
    groups = failures_of(ledger, link.study)
    if not groups:
        st.info("Every slide that has finished has a result.")
    chosen = next((group for group in groups if (group.state, group.code) == (link.state, link.code)), None)
    if chosen:
        _group(study_ledger, ledger, link, chosen)
        return
    for group in groups:
        with st.container(border=True):
            _summary(group)
            if st.button("Show or retry the slides", key=f"open {group.state} {group.code}"):
                go(StudyLink(link.study, "failures", state=group.state, code=group.code).query())


def _summary(group: Failures) -> None:
    """Draw the number of slides, one example of the reason, and what to do."""
    st.markdown(f"**{as_markdown(study_rows.failures_title(group))}**")
    st.markdown(f"For example, {as_markdown(study_rows.failures_example(group, served_project().root))}")
    st.markdown(f"**What to do:** {group.remedy}")


def _group(study_ledger: StudyLedger, ledger: Ledger, link: StudyLink, group: Failures) -> None:
    """Draw the slides of a group, with a form to retry all or the ticked ones."""
    if st.button("All groups", icon=":material/arrow_back:", type="tertiary", key="to_groups"):
        go(StudyLink(link.study, "failures").query())
    _summary(group)
    wanted = SlideSearch(group.state, group.code)
    link = nearest_page(link, group.slides)
    page = find_slides(ledger, link.study, wanted, skip=(link.page - 1) * SLIDES_PER_PAGE, limit=SLIDES_PER_PAGE)
    page_buttons(link, page.total, "Tick slides to retry only those; click a slide to see its history.")
    tasks = ledger.tasks(link.study, *(row.slide_id for row in page.rows))
    shown = study_rows.slide_rows(page.rows, tasks, served_project().root)
    rows = [{name: row[name] for name in _COLUMNS} for row in shown]
    event = st.dataframe(
        rows,
        column_config=_COLUMNS,
        column_order=study_rows.filled(rows),
        hide_index=True,
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        key=f"failures {link.query()}",
    )
    if slide_id := clicked(event, page.rows):
        go(StudyLink(link.study, slide=slide_id).query())
    ticked = [page.rows[index].slide_id for index in event.selection.rows if index < len(page.rows)]
    chosen = Chosen(len(ticked), slide_ids=ticked) if ticked else Chosen(page.total, ended=wanted)
    with st.container(border=True, width=640):
        retry_form(study_ledger, ledger, link.study, chosen)
