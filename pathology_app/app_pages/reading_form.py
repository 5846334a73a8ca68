"""The study's questionnaire for one reading: each answer is kept as it is given; the signature locks them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pathology_app import reading_rows
from pathology_app.reading_link import ReadingLink
from pathology_app.study_ledger import StudyLedger
from pathology_app.text import READ_ERRORS, as_markdown, as_text, message_of
from pathology_app.tiles.cache import current_cache
from pipeline.errors import GemslideError
from pipeline.review import Looking, coverage_of, grid_for, tissue_cells
from pipeline.study import Answer, Question, ReaderProgress, Readings
from pipeline.study.questions import MAX_TEXT

MAX_RADIO = 9
"""With more choices than that, they stand in a menu."""
_WRONG = "reading_wrong"


@dataclass(frozen=True)
class Desk:
    """One reading that is started, and who reads.

    Attributes:
        due: its row.
        actor: whom the log names.
    """

    found: StudyLedger
    readings: Readings
    link: ReadingLink
    due: Any
    mine: ReaderProgress
    actor: str

    @property
    def key(self) -> tuple[str, int, int]:
        return self.link.reader, self.link.session, self.link.position


@st.fragment
def questionnaire(desk: Desk) -> None:
    """Draw it. An answer runs only this part of the page again."""
    config = desk.readings.config
    try:
        given = desk.readings.answers(*desk.key)
    except READ_ERRORS as error:
        _say(error)
        return
    in_session = desk.readings.count(desk.link.reader, desk.link.session)
    st.markdown(
        f"**{as_markdown(desk.mine.reader)}** · {as_markdown(reading_rows.ARMS.get(desk.due.arm, desk.due.arm))}"
    )
    st.caption(reading_rows.place_text(desk.due, desk.mine.total, desk.mine.signed, in_session))
    for question in config.questions:
        _ask(desk, question, given.get(question.name))
    if wrong := st.session_state.pop(_WRONG, None):
        st.error(as_markdown(wrong))
    _signature(desk, given)


def _ask(desk: Desk, question: Question, answer: Answer | None) -> None:
    key = f"answer {desk.link.study_id} {desk.link.key} {question.name}"
    needed = " (required)" if question.required else ""
    st.markdown(as_markdown(question.ask) + (f" :red[{needed.strip()}]" if needed else ""))
    # A screen reader says the label as it stands, with all that Markdown would take for its own.
    label = as_text(question.ask) + needed
    options: dict[str, Any] = {"key": key, "on_change": _give, "args": (desk, question, key)}
    options["label_visibility"] = "collapsed"
    if question.kind == "yes_no":
        index = None if answer is None else 0 if answer else 1
        st.radio(label, (True, False), index, format_func=reading_rows.answer_text, horizontal=True, **options)
    elif question.kind == "choice":
        index = question.choices.index(str(answer)) if answer in question.choices else None
        if len(question.choices) <= MAX_RADIO:
            st.radio(label, question.choices, index, format_func=as_text, **options)
        else:
            st.selectbox(label, question.choices, index, format_func=as_text, **options)
    elif question.kind == "score":
        # No slider: it would stand at a number that nobody gave.
        step = 1.0 if question.high - question.low >= 10 else 0.1
        shown = f"{question.low:g} to {question.high:g}"
        value = None if answer is None else float(answer)
        st.number_input(label, question.low, question.high, value, step, placeholder=shown, format="%g", **options)
    else:
        st.text_area(label, str(answer or ""), max_chars=MAX_TEXT, height=100, **options)


def _give(desk: Desk, question: Question, key: str) -> None:
    """Keep an answer at once; the earlier one is kept too, and does not count any more."""
    value = st.session_state[key]
    if value is None:
        st.session_state[_WRONG] = f"{question.name}: an answer that was given stays until another one is given."
        return
    try:
        desk.readings.give(*desk.key, question.name, value, actor=desk.actor)
    except GemslideError as error:
        st.session_state[_WRONG] = message_of(error, current_cache().project.root)


def _signature(desk: Desk, given: Mapping[str, Answer]) -> None:
    """Sign, saying what that locks, and go on to the next reading."""
    config = desk.readings.config
    missing = reading_rows.missing(config, given)
    if missing:
        st.caption(f"To be answered still: {as_markdown(', '.join(each.name for each in missing))}.")
    else:
        st.caption(f"Signing locks: {as_markdown(reading_rows.locked_text(config, given))}.")
    if st.button("Sign and go on", type="primary", disabled=bool(missing), key="sign", width="stretch"):
        try:
            _sign(desk)
        except READ_ERRORS as error:
            _say(error)
            return
        st.rerun()


def _sign(desk: Desk) -> None:
    """Lock the answers with what was looked at, and open the next reading of the same session."""
    ledger = desk.readings.ledger
    looking = Looking(desk.due.slide_id, desk.link.reader, desk.actor, desk.link.study_id, desk.link.key)
    coverage = coverage_of(ledger, looking)
    seconds = reading_rows.seconds_of(coverage, desk.due.started_utc)
    seen = reading_rows.seen_details(coverage, _tissue(desk.due.slide_id) if desk.due.arm != "glass" else None)
    desk.readings.sign(*desk.key, seconds=seconds, actor=desk.actor, seen=seen)
    due = desk.readings.next_of(desk.link.reader) if _goes_on(desk) else None
    if due is not None and due.state == "open":
        desk.readings.start(desk.link.reader, due.session, due.position, actor=desk.actor)


def _goes_on(desk: Desk) -> bool:
    """Whether the next reading is of the same session: a new arm is begun on purpose, and a washout may come first."""
    return bool(desk.link.position < desk.readings.count(desk.link.reader, desk.link.session))


def _tissue(slide_id: str) -> Any | None:
    """Cells of the coverage with tissue; None where that is not known."""
    cache = current_cache()
    try:
        slide, tissue = cache.slide(slide_id).reader, cache.tissue(slide_id)
    except READ_ERRORS:
        return None
    return tissue_cells(grid_for(slide.size_wh_px0, slide.mpp0), tissue.mask_yx, tissue.mpp) if tissue else None


def _say(error: Exception) -> None:
    st.error(as_markdown(message_of(error, current_cache().project.root)))
