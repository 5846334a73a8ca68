"""A slide's readings in a study: reader, arm, duration, and the answers, for those who may see them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pathology_app.app_pages.studies import reading_rows
from pathology_app.html import tables as html_tables
from pathology_app.people.person import Action, Person
from pathology_app.people.visitor import current_person
from pipeline.ledger import Ledger
from pipeline.ledger.rows import reading_subject
from pipeline.study import Readings, readings_of, readings_of_slide


def reading_key(row: Any) -> str:
    """Name of a reading in the log."""
    return reading_subject(row.reader, row.session, row.position)


def draw_readings(ledger: Ledger, study_id: str, slide_id: str, *, is_blinded: bool) -> None:
    """Draw a slide's readings; others' answers only for adjudicators and coordinators.

    Args:
        is_blinded: others' answers are hidden from the person: only their own readings are drawn.

    Raises: as the ledger.
    """
    rows = readings_of_slide(ledger, study_id, slide_id)
    readings = readings_of(ledger, study_id) if rows else None
    if readings is None:
        return
    person = current_person()
    if is_blinded:
        rows = [(row, given) for row, given in rows if _is_own(person, row)]
    others = not is_blinded and may_see_others(person, readings)
    shown = [(row, given if row.state == "signed" and (others or _is_own(person, row)) else {}) for row, given in rows]
    if shown:
        st.html(html_tables.beside({"Readings": reading_rows.answers_html(readings.config, shown, label="Readings")}))


def may_see_others(person: Person, readings: Readings) -> bool:
    """Whether a person may see others' progress and signed answers: coordinators and the study's adjudicators may."""
    if person.may(Action.COORDINATE):
        return True
    return person.may(Action.ADJUDICATE) and person.reader in readings.config.adjudicators


def _is_own(person: Person, row: Any) -> bool:
    return person.reader is not None and person.reader == row.reader
