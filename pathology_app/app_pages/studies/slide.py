"""One slide of a study: its stages, why it ended, and every entry of the log about it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pathology_app.app_pages.counts import counts_html
from pathology_app.app_pages.declared import fragment, say_hidden
from pathology_app.app_pages.navigation import Place, go, link_button, say
from pathology_app.app_pages.studies import rows as study_rows
from pathology_app.app_pages.studies.actions import Chosen, retry_form
from pathology_app.app_pages.studies.reading_answers import draw_readings, reading_key
from pathology_app.html import tables as html_tables
from pathology_app.html.text import READ_ERRORS, as_markdown, without_folders
from pathology_app.links.studies import StudyLink
from pathology_app.people.actions import is_allowed
from pathology_app.people.acts import Act
from pathology_app.project.ledger import StudyLedger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Visibility
from pathology_app.slides.cache import current_cache
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import slide_subject, task_subject
from pipeline.study import readings_of_slide
from pipeline.study.outcomes.remedies import remedy_of
from pipeline.study.outcomes.retries import MAY_BE_RETRIED
from training.foundation.words.names import is_name

ENTRIES_SHOWN = 50
REFRESH_S = 5.0


def draw(study_ledger: StudyLedger, ledger: Ledger, link: StudyLink, visibility: Visibility) -> None:
    """Draw the slide that the link names. Raises: as the ledger; BadManifestError: no such slide."""
    row = ledger.slide(link.study, link.slide or "")
    words, action = st.columns([5, 1], vertical_alignment="top")
    words.markdown(f"#### Slide {as_markdown(row.slide_id)}")
    _viewer_button(action, row.slide_id, link)
    if blinded := visibility.hides_assessments(row.slide_id):
        say_hidden(blinded)
        draw_readings(ledger, link.study, row.slide_id, is_blinded=True)
        return
    st.html(html_tables.facts(study_rows.slide_facts(row)))
    if row.message:
        st.markdown(f"**Reason:** {as_markdown(without_folders(row.message, served_project().root))}")
    if row.state in MAY_BE_RETRIED:
        st.markdown(f"**What to do:** {remedy_of(row.code)}")
    if row.state in MAY_BE_RETRIED and is_allowed(Act.RETRY):
        with st.popover("Retry …", icon=":material/replay:"):
            retry_form(study_ledger, ledger, link.study, Chosen(1, slide_ids=[row.slide_id]))
    draw_readings(ledger, link.study, row.slide_id, is_blinded=False)
    if is_name(row.slide_id) and (counts := counts_html(current_cache(), ledger, row.slide_id)):
        st.html(counts)
    every_s = REFRESH_S if row.state == "pending" else None
    fragment(_live, run_every=every_s)(study_ledger, link, row.slide_id, row.message)


def _viewer_button(place: Place, slide_id: str, link: StudyLink) -> None:
    """Draw the link to the viewer, if the slide has a store."""
    project = served_project()
    if is_name(slide_id) and project.has_store(slide_id):
        query = {**link.query(), "slide": slide_id}
        place = place.container(horizontal=True, horizontal_alignment="right")
        link_button(place, "Open in the viewer", query, key="to_viewer", icon=":material/biotech:")


def _live(study_ledger: StudyLedger, link: StudyLink, slide_id: str, message: str | None) -> None:
    """Draw the part that changes while workers process the slide."""
    try:
        ledger = study_ledger.ledger()
        if ledger is not None:
            tasks = ledger.tasks(link.study, slide_id)
            stages = study_rows.stages_html(tasks, served_project().root, said=message)
            st.html(html_tables.beside({"Stages": stages}))
            _history(ledger, link, slide_id, [task.stage for task in tasks])
    except READ_ERRORS as error:
        say(error)


def _history(ledger: Ledger, link: StudyLink, slide_id: str, stages: list[Any]) -> None:
    """Draw part of the log, newest last, with a button to earlier entries."""
    read = [reading_key(row) for row, _ in readings_of_slide(ledger, link.study, slide_id)]
    subjects = [slide_subject(slide_id), *(task_subject(slide_id, stage) for stage in stages), *read]
    entries = ledger.history(link.study, *subjects, newest=ENTRIES_SHOWN + 1, before=link.before)
    shown = entries[-ENTRIES_SHOWN:]
    st.html(html_tables.beside({"Log, newest last": study_rows.history_html(shown, label="Log of the slide")}))
    buttons = st.container(horizontal=True)
    if len(entries) > len(shown) and buttons.button("Earlier entries", key="earlier"):
        go(link.to(before=shown[0].seq).query())
    if link.before is not None and buttons.button("Newest entries", key="newest"):
        go(link.to(before=None).query())
