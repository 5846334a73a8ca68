"""The reading that is due: the slide with the study's questionnaire beside it, blinded where the arm says so; signed,
then the next one."""

from __future__ import annotations

import streamlit as st

from pathology_app import html_tables, reading_rows
from pathology_app.access.page_views import log_view
from pathology_app.access.people import Action, Person, current_person, require
from pathology_app.app_pages.reading_form import Desk, questionnaire
from pathology_app.app_pages.study_navigation import go, say
from pathology_app.blinding import hidden_slides
from pathology_app.reading_link import ReadingLink
from pathology_app.reading_view import LINK_PARAMETER, reading_view, study_models
from pathology_app.study_actors import reader_actor
from pathology_app.study_ledger import StudyLedger
from pathology_app.study_link import StudyLink
from pathology_app.text import READ_ERRORS, as_markdown
from pathology_app.tiles.cache import current_cache
from pathology_app.viewer.component import reading_clock, slide_viewer
from pipeline.study import (
    ADJUDICATION,
    Ledger,
    ReaderProgress,
    Readings,
    may_show_predictions,
    progress_of_readers,
    readings_of,
    readings_of_slide,
)

VIEWER_KEY = "viewer"
_NARROW = """
<style>
@media (max-width: 900px) {
  .st-key-desk > div > [data-testid="stHorizontalBlock"], .st-key-desk > [data-testid="stHorizontalBlock"]
    { flex-direction: column; }
  .st-key-desk [data-testid="stColumn"] { width: 100%; min-width: 100%; flex: none; }
}
.st-key-desk [role="radiogroup"] label { min-height: 32px; }
.st-key-questions { gap: 0.4rem; }
@media (pointer: coarse) { .st-key-desk [role="radiogroup"] label { min-height: 44px; } }
</style>
"""


def draw(found: StudyLedger, ledger: Ledger, link: StudyLink) -> None:
    """Draw the reading that is due. Raises: as the ledger; ForbiddenError: not for who is here."""
    readings = readings_of(ledger, link.study)
    if readings is None:
        st.info("This study has no readings: its protocol has no [reading].")
        return
    person = current_person()
    if not person.may(Action.ADJUDICATE):
        require(person, Action.READ)
    everybody = progress_of_readers(readings)
    if not everybody:
        st.info("The readings of this study are not laid out yet. Its coordinator does that under “Readings”.")
        return
    mine = _who(person, everybody, link)
    if mine is None:
        return
    actor = reader_actor(person, mine.reader)
    if mine.due is None:
        st.success(f"All {mine.total} readings of {as_markdown(mine.reader)} are signed.")
    elif mine.waits_until is not None:
        _say_washout(mine, readings)
    elif mine.due.state == "open":
        _start(readings, mine, actor)
    else:
        _read(found, ledger, readings, mine, actor)
    _signed(ledger, readings, mine, person)


def _who(person: Person, everybody: list[ReaderProgress], link: StudyLink) -> ReaderProgress | None:
    """The reader who is here: the one signed in, else the one chosen on the page."""
    by_name = {each.reader: each for each in everybody}
    if person.name is not None:
        if person.reader not in by_name:
            st.info("You are not among the readers of this study.")
        return by_name.get(person.reader or "")
    chosen = by_name.get(link.reader or "")
    if chosen is not None and chosen.due is not None and chosen.due.state == "started":
        return chosen
    names = list(by_name)
    index = names.index(chosen.reader) if chosen else None
    picked = st.selectbox(
        "You read as", names, index, placeholder="choose your pseudonym", key=f"who {link.reader}", width=360
    )
    st.caption("Nobody signs in here: the log says that this name was chosen, and that nobody has checked it.")
    if picked is not None and picked != link.reader:
        go(link.to(reader=picked).query())
    return chosen


def _say_washout(mine: ReaderProgress, readings: Readings) -> None:
    assert mine.due is not None
    st.info(
        f"Washout: session {mine.due.session} ({mine.due.arm}) of {as_markdown(mine.reader)} begins on "
        f"{reading_rows.until_text(mine)} UTC, {readings.config.washout_days:g} days after the last reading of the "
        "slide that comes first. Come back then.",
        icon=":material/hourglass_top:",
    )


def _start(readings: Readings, mine: ReaderProgress, actor: str) -> None:
    """What comes next, to be started on purpose: from then on time counts."""
    due = mine.due
    assert due is not None
    st.markdown(f"#### Next reading of {as_markdown(mine.reader)}")
    st.html(
        html_tables.facts({"Session": due.session, "Slide": due.position, "Signed": f"{mine.signed} of {mine.total}"})
    )
    st.markdown(f"**Arm** — {as_markdown(reading_rows.ARMS.get(due.arm, due.arm))}.")
    words = "Continue reading" if mine.signed else "Start reading"
    if st.button(words, type="primary", key="start_reading"):
        readings.start(mine.reader, due.session, due.position, actor=actor)
        st.rerun()


def _read(found: StudyLedger, ledger: Ledger, readings: Readings, mine: ReaderProgress, actor: str) -> None:
    due = mine.due
    assert due is not None
    _name_slide(due.slide_id)
    link = ReadingLink(readings.study_id, mine.reader, due.session, due.position)
    desk = Desk(found, readings, link, due, mine, actor)
    st.html(_NARROW)
    with st.container(key="desk"):
        if due.arm == "glass":
            _glass(desk)
            return
        slide_place, form_place = st.columns([2.9, 1])
        with form_place:
            if due.arm == ADJUDICATION:
                _others(ledger, readings, due.slide_id)
            with st.container(key="questions"):
                questionnaire(desk)
        with slide_place:
            _slide(ledger, desk)


def _glass(desk: Desk) -> None:
    """The form without a slide: that lies under the microscope."""
    st.markdown(f"#### Slide {as_markdown(desk.due.slide_id)} at the microscope")
    reading_clock(f"/coverage/{desk.due.slide_id}.json?{desk.link.query()}", key="reading_clock")
    with st.container(width=640):
        questionnaire(desk)


def _slide(ledger: Ledger, desk: Desk) -> None:
    cache, slide_id = current_cache(), desk.due.slide_id
    try:
        log_view(slide_id, "reading", study=desk.link.study_id)
        shown = may_show_predictions(desk.due)
        model_ids = study_models(cache, ledger.study(desk.link.study_id), slide_id) if shown else []
        if len(model_ids) > 1:
            first = st.selectbox("Model", model_ids, key=f"model {desk.link.key}")
            model_ids = [first, *(each for each in model_ids if each != first)]
        slide_viewer(reading_view(cache, desk.link, slide_id, model_ids), key=VIEWER_KEY, on_click=lambda: None)
    except READ_ERRORS as error:
        say(error)


def _others(ledger: Ledger, readings: Readings, slide_id: str) -> None:
    """What the readers answered, for who decides."""
    read = readings_of_slide(ledger, readings.study_id, slide_id)
    signed = [(row, given) for row, given in read if row.state == "signed" and row.arm != ADJUDICATION]
    st.html(html_tables.beside({"What the readers answered": reading_rows.side_by_side_html(readings.config, signed)}))


def _signed(ledger: Ledger, readings: Readings, mine: ReaderProgress, person: Person) -> None:
    """The way back to what was signed."""
    rows = readings.signed_of(mine.reader)
    if rows:
        with st.expander(f"Signed readings ({len(rows)})"):
            hidden = hidden_slides(current_cache().project, person)
            st.html(reading_rows.signed_html(readings.study_id, rows, hidden))


def _name_slide(slide_id: str) -> None:
    """The link names the slide, so that the browser keeps the view of this one in it."""
    if st.query_params.get(LINK_PARAMETER) != slide_id:
        kept = StudyLink.of(st.query_params.to_dict()).query()
        st.query_params.from_dict({**kept, LINK_PARAMETER: slide_id})
