"""The study's questionnaire for a reading: typed answers are saved a moment later; the signature locks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pathology_app.app_pages.declared import fragment
from pathology_app.app_pages.signed_form import Answers, DraftPlace, SignedForm, place_of
from pathology_app.app_pages.studies import reading_rows
from pathology_app.html.text import READ_ERRORS, as_markdown, message_of
from pathology_app.links.reading import ReadingLink
from pathology_app.links.studies import StudyLink
from pathology_app.people.actions import logging_refusal
from pathology_app.people.actors import reader_actor
from pathology_app.people.acts import Act
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import StudyLedger
from pathology_app.project.served import served_project
from pathology_app.readings.acts import keep_answers, sign_reading
from pathology_app.readings.drafts import draft_owner
from pathology_app.slides.cache import current_cache
from pipeline.review import ViewContext, coverage_of, grid_for, tissue_cells
from pipeline.study import ReaderProgress, Readings

FORM_KEY = "questionnaire"
JUST_SIGNED, SIGNED_SLIDE = "reading_signed", "reading_signed_slide"
"""In the session's state: the reading that was signed last, and its slide."""


@dataclass(frozen=True)
class StartedReading:
    """One started reading.

    Attributes:
        due: the reading's row.
        others: the readers' answers (`reading_rows.others_data`), for the adjudicator alone.
    """

    found: StudyLedger
    readings: Readings
    link: ReadingLink
    due: Any
    mine: ReaderProgress
    others: Sequence[Mapping[str, Any]] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        return self.link.reader, self.link.session, self.link.position

    @property
    def place(self) -> str:
        """Identifier of the reading and of this start of it, in any project."""
        return place_of(self.link.query(), self.due.started_utc)


@fragment
def questionnaire(reading: StartedReading) -> None:
    """Draw the form. An answer reruns only this part of the page."""
    if st.session_state.get(JUST_SIGNED) == reading.place:
        st.rerun()  # the whole page: another reading is due
    config = reading.readings.config
    try:
        given = reading.readings.answers(*reading.key)
    except READ_ERRORS as error:
        st.error(as_markdown(message_of(error, served_project().root)))
        return
    in_session = reading.readings.count(reading.link.reader, reading.link.session)
    arm = reading_rows.ARMS.get(reading.due.arm, reading.due.arm)
    st.markdown(f"**{as_markdown(reading.mine.reader)}** · {as_markdown(arm)}")
    st.caption(reading_rows.place_text(reading.due, reading.mine.total, reading.mine.signed, in_session))
    form = SignedForm(
        FORM_KEY,
        reading.place,
        [reading_rows.question_data(question) for question in config.questions],
        _draft_place(reading),
        {name: value for name, value in given.items() if name in {question.name for question in config.questions}},
        others=reading.others,
    )
    form.draw(on_keep=lambda answers: _keep(reading, answers), on_sign=lambda answers: _sign(reading, answers))


def _keep(reading: StartedReading, answers: Answers) -> None:
    with logging_refusal(Act.ANSWER) as person:
        keep_answers(person, reading.readings, reading.link, answers)


def _sign(reading: StartedReading, answers: Answers) -> None:
    """Lock the answers with the coverage viewed. The next reading begins when its reader says so."""
    ledger = reading.readings.ledger
    with logging_refusal(Act.SIGN) as person:
        actor = reader_actor(person, reading.link.reader)
        context = ViewContext(reading.due.slide_id, reading.link.reader, actor, reading.link.study_id, reading.link.key)
        coverage = coverage_of(ledger, context, reading.readings.config.seen)
        seconds = reading_rows.seconds_of(coverage, reading.due.started_utc)
        seen = reading_rows.seen_details(
            coverage, _tissue(reading.due.slide_id) if reading.due.arm != "glass" else None
        )
        sign_reading(person, reading.readings, reading.link, answers, seconds=seconds, seen=seen)
        st.session_state[JUST_SIGNED] = reading.place
        st.session_state[SIGNED_SLIDE] = reading.due.slide_id


def _draft_place(reading: StartedReading) -> DraftPlace:
    link = reading.link
    person = current_person()
    query = StudyLink(link.study_id, "read", reader=None if person.name else link.reader).query()
    title = f"Study {link.study_id}, session {link.session}, slide {link.position}"
    return DraftPlace(draft_owner(served_project().root, person), title, query)


def _tissue(slide_id: str) -> Any | None:
    """Cells of the coverage grid that contain tissue; None where unknown."""
    cache = current_cache()
    try:
        slide, tissue = cache.slide(slide_id).reader, cache.tissue(slide_id)
    except READ_ERRORS:
        return None
    return tissue_cells(grid_for(slide.size_wh_px0, slide.mpp0), tissue.mask_yx, tissue.mpp) if tissue else None
