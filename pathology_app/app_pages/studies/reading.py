"""The reading that is due: the slide next to the study's questionnaire, blinded where the arm requires it; after the
signature, the choice between the next one and a pause."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pathology_app.access.visibility import attended_of
from pathology_app.app_pages.navigation import go, link_button, say
from pathology_app.app_pages.page_views import log_view
from pathology_app.app_pages.studies import reading_rows
from pathology_app.app_pages.studies.reading_form import SIGNED_SLIDE, StartedReading, questionnaire
from pathology_app.html import tables as html_tables
from pathology_app.html.text import READ_ERRORS, as_markdown
from pathology_app.links.reading import ReadingLink
from pathology_app.links.studies import StudyLink
from pathology_app.people.actions import logging_refusal
from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import Action, Person
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import StudyLedger
from pathology_app.project.served import served_project
from pathology_app.readings.acts import start_reading
from pathology_app.readings.blinding import Visibility, study_models, visibility_of
from pathology_app.readings.status import next_unread
from pathology_app.readings.taking_part import check_reading
from pathology_app.readings.view import LINK_PARAMETER, reading_view, study_models_of
from pathology_app.slides.cache import current_cache
from pathology_app.viewer.component import reading_clock, slide_viewer
from pipeline.errors import BadManifestError
from pipeline.ledger import Ledger
from pipeline.study import (
    ADJUDICATION,
    ReaderProgress,
    Readings,
    check_shown_in,
    may_show_predictions,
    progress_of_readers,
    readings_of,
    readings_of_slide,
)
from training.foundation.words.counts import counted

VIEWER_KEY = "viewer"
_NARROW = """
<style>
@media (max-width: 900px) {
  .st-key-desk > div > [data-testid="stHorizontalBlock"], .st-key-desk > [data-testid="stHorizontalBlock"]
    { flex-direction: column; }
  .st-key-desk [data-testid="stColumn"] { width: 100%; min-width: 100%; flex: none; }
}
.st-key-questions { gap: 0.4rem; }
</style>
"""


def draw(study_ledger: StudyLedger, ledger: Ledger, link: StudyLink, visibility: Visibility) -> None:
    """Draw the reading that is due. Raises: as the ledger; ForbiddenError: it is not for this person."""
    readings = readings_of(ledger, link.study)
    if readings is None:
        st.info("This study has no readings: its protocol has no [reading].")
        return
    person = current_person()
    if not person.may(Action.ADJUDICATE):
        check_act(person, Act.START_READING)
    everybody = progress_of_readers(readings)
    if not everybody:
        st.info("The readings of this study are not laid out yet. Its coordinator does that under “Readings”.")
        return
    mine = _who(person, everybody, link)
    if mine is None:
        return
    if mine.due is None:
        st.success(f"Everything is signed: {counted(mine.total, 'reading')} of {as_markdown(mine.reader)}.")
    elif not mine.is_due:
        _say_not_due(mine, readings)
    else:
        due = ReadingLink(readings.study_id, mine.reader, mine.due.session, mine.due.position)
        check_reading(person, readings, due)
        if mine.due.state == "open":
            _start(readings, mine, due)
        else:
            _read(study_ledger, ledger, readings, mine, due)
    _signed(readings, mine, visibility)


def _who(person: Person, everybody: list[ReaderProgress], link: StudyLink) -> ReaderProgress | None:
    """The reader at the page: the one signed in, else the one chosen on the page."""
    by_name = {progress.reader: progress for progress in everybody}
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
    st.caption("There is no sign-in here: the log records that this name was chosen and not verified.")
    if picked is not None and picked != link.reader:
        go(link.to(reader=picked).query())
    return chosen


def _say_not_due(mine: ReaderProgress, readings: Readings) -> None:
    """Explain why none of the readings can be read now, and lead to another study's, if one is due there."""
    due = mine.due
    assert due is not None
    _say_signed()
    if due.arm == ADJUDICATION:
        why = (
            f"{counted(mine.num_later, 'slide waits', 'slides wait')} for your decision: not every reader has signed "
            "them. Come back later."
        )
    else:
        until = f" on {reading_rows.until_text(mine)} UTC" if mine.waits_until else ""
        why = (
            f"Washout: session {due.session} ({due.arm}) of {as_markdown(mine.reader)} begins{until}, "
            f"{counted(readings.config.washout_days, 'day')} after the last reading of its first slide. "
            f"{counted(mine.num_later, 'reading is', 'readings are')} not due yet. Come back then."
        )
    st.info(why, icon=":material/hourglass_top:")
    elsewhere = next_unread(served_project(), current_person())
    if elsewhere is not None and elsewhere.query is not None:
        label = f"Next unread ({elsewhere.num_now:,})"
        link_button(st.container(), label, elsewhere.query, key="next_unread", icon=":material/visibility:")


def _say_signed() -> None:
    """Confirm the signature given just before, for as long as nothing else is begun."""
    slide_id = st.session_state.get(SIGNED_SLIDE)
    if slide_id:
        st.success(f"Signed: slide {as_markdown(slide_id)}.")


def _start(readings: Readings, mine: ReaderProgress, link: ReadingLink) -> None:
    """Draw the place between two slides: the next one, or a pause. No time is counted here."""
    due = mine.due
    assert due is not None
    _say_signed()
    st.markdown(f"#### Next reading of {as_markdown(mine.reader)}")
    st.html(
        html_tables.facts({"Session": due.session, "Slide": due.position, "Signed": f"{mine.signed} of {mine.total}"})
    )
    st.markdown(f"**Arm** — {as_markdown(reading_rows.ARMS.get(due.arm, due.arm))}.")
    later = f" {mine.num_later:,} not due yet." if mine.num_later else ""
    st.caption(f"{mine.num_now:,} can be read now.{later} The time begins when the slide is on the screen.")
    words = "Next" if mine.signed else "Start reading"
    buttons = st.container(horizontal=True)
    if buttons.button(words, type="primary", key="start_reading", shortcut="N"):
        with logging_refusal(Act.START_READING) as person:
            start_reading(person, readings, link)
        st.session_state.pop(SIGNED_SLIDE, None)
        st.rerun()
    if buttons.button("Pause", key="pause_reading", shortcut="P"):
        st.session_state.pop(SIGNED_SLIDE, None)
        go(StudyLink(readings.study_id, "readings").query())


def _read(
    study_ledger: StudyLedger, ledger: Ledger, readings: Readings, mine: ReaderProgress, link: ReadingLink
) -> None:
    due = mine.due
    assert due is not None
    _name_slide(due.slide_id)
    others = _others(ledger, readings, due.slide_id) if due.arm == ADJUDICATION else []
    reading = StartedReading(study_ledger, readings, link, due, mine, others)
    st.html(_NARROW)
    with st.container(key="desk"):
        if due.arm == "glass":
            _glass(reading)
            return
        slide_place, form_place = st.columns([2.9, 1])
        with form_place, st.container(key="questions"):
            questionnaire(reading)
        with slide_place:
            _slide(ledger, reading)


def _glass(reading: StartedReading) -> None:
    """Draw the form without a slide: the slide is under the microscope."""
    st.markdown(f"#### Slide {as_markdown(reading.due.slide_id)} at the microscope")
    reading_clock(f"/coverage/{reading.due.slide_id}.json?{reading.link.query()}", key="reading_clock")
    with st.container(width=640):
        questionnaire(reading)


def _slide(ledger: Ledger, reading: StartedReading) -> None:
    cache, slide_id = current_cache(), reading.due.slide_id
    try:
        log_view(slide_id, "reading", study=reading.link.study_id)
        shows = may_show_predictions(reading.due) and _may_show_now(ledger, reading)
        model_ids, attended = _models_shown(ledger, reading) if shows else ([], [])
        if len(model_ids) > 1:
            first = st.selectbox("Model", model_ids, key=f"model {reading.link.key}")
            model_ids = [first, *(model_id for model_id in model_ids if model_id != first)]
        view = reading_view(cache, reading.link, slide_id, model_ids, attended)
        slide_viewer(view, key=VIEWER_KEY, on_click=lambda _: None)
    except READ_ERRORS as error:
        say(error)


def _may_show_now(ledger: Ledger, reading: StartedReading) -> bool:
    """Whether an assisted reading shows models now; where another study forbids that, the reason is shown."""
    try:
        with ledger.database.read() as connection:
            check_shown_in(connection, reading.due)
    except BadManifestError as error:
        say(error)
        return False
    return True


def _models_shown(ledger: Ledger, reading: StartedReading) -> tuple[list[str], list[str]]:
    """The study's models of tiles, and its slide-level models, that an assisted reading shows: none of the latter whose
    answer rests on a slide that is still to be read without."""
    cache, row, slide_id = current_cache(), ledger.study(reading.link.study_id), reading.due.slide_id
    attended = attended_of(cache, visibility_of(served_project(), current_person()), slide_id)
    return study_models_of(cache, row, slide_id), [name for name in study_models(row) if name in attended]


def _others(ledger: Ledger, readings: Readings, slide_id: str) -> list[dict[str, Any]]:
    """The readers' signed answers, for the adjudicator."""
    read = readings_of_slide(ledger, readings.study_id, slide_id)
    signed = [(row, given) for row, given in read if row.state == "signed" and row.arm != ADJUDICATION]
    return reading_rows.others_data(readings.config, signed)


def _signed(readings: Readings, mine: ReaderProgress, visibility: Visibility) -> None:
    """Draw links back to the signed readings."""
    rows = readings.signed_of(mine.reader)
    if rows:
        with st.expander(f"Signed readings ({len(rows)})"):
            st.html(reading_rows.signed_html(readings.study_id, rows, is_hidden=visibility.first is not None))


def _name_slide(slide_id: str) -> None:
    """Name the slide in the link, so that the browser keeps this slide's view in it."""
    if st.query_params.get(LINK_PARAMETER) != slide_id:
        kept = StudyLink.of(st.query_params.to_dict()).query()
        st.query_params.from_dict({**kept, LINK_PARAMETER: slide_id})
