"""A slide's readings in a study: who read it in which arm, how long, and the answers, for those who may see them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pathology_app import html_tables, reading_rows
from pathology_app.access.people import Action, Person, current_person
from pipeline.study import Ledger, readings_of, readings_of_slide
from pipeline.study.rows import reading_subject


def reading_key(row: Any) -> str:
    """What the log calls a reading."""
    return reading_subject(row.reader, row.session, row.position)


def draw_readings(ledger: Ledger, study_id: str, slide_id: str) -> None:
    """Draw them; answers of others only for those who decide or steer. Raises: as the ledger."""
    found = readings_of_slide(ledger, study_id, slide_id)
    readings = readings_of(ledger, study_id) if found else None
    if readings is None:
        return
    person = current_person()
    shown = [(row, given if _may_see(person, row) else {}) for row, given in found]
    st.html(html_tables.beside({"Readings": reading_rows.answers_html(readings.config, shown, label="Readings")}))


def _may_see(person: Person, row: Any) -> bool:
    """A reader sees what they themselves have signed; who decides or steers sees what anybody has."""
    is_own = person.reader is not None and person.reader == row.reader
    steers = person.may(Action.COORDINATE) or person.may(Action.ADJUDICATE)
    return bool(row.state == "signed" and (steers or is_own))
