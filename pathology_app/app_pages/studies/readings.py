"""How far a study's readings are, for who steers it: readers, washouts, and the slides on which they disagree."""

from __future__ import annotations

import json

import streamlit as st

from pathology_app import html_tables, reading_rows
from pathology_app.access.people import Action, current_person, require
from pathology_app.app_pages.study_actions import ask_who_and_why, done
from pathology_app.app_pages.study_heading import draw_heading
from pathology_app.app_pages.study_navigation import link_button
from pathology_app.html_tables import Column, table
from pathology_app.study_ledger import StudyLedger
from pathology_app.study_link import StudyLink
from pathology_app.study_rows import time_text
from pathology_app.text import as_markdown
from pipeline.study import ADJUDICATION, Ledger, Readings, lay_out, progress_of_readers, readings_of

_READ_ICON = ":material/visibility:"


def draw(found: StudyLedger, ledger: Ledger, link: StudyLink) -> None:
    """Draw it. Raises: as the ledger."""
    row = ledger.study(link.study)
    draw_heading(found, ledger, row, link, found.progress(ledger, link.study).counts)
    readings = readings_of(ledger, link.study)
    if readings is None:
        st.info("This study has no readings: its protocol has no [reading].")
        return
    if readings.config.note:
        st.caption(as_markdown(readings.config.note))
    person, progress = current_person(), progress_of_readers(readings)
    if not progress:
        _lay_out(found, ledger, readings)
        return
    if person.may(Action.READ) or person.may(Action.ADJUDICATE):
        link_button(st.container(), "Read", StudyLink(link.study, "read").query(), key="to_reading", icon=_READ_ICON)
    steers = person.may(Action.COORDINATE) or person.may(Action.ADJUDICATE)
    shown = progress if steers else [each for each in progress if each.reader == person.reader]
    st.html(html_tables.beside({"Readers": reading_rows.progress_html(shown)}))
    if steers:
        _adjudication(found, readings)


def _lay_out(found: StudyLedger, ledger: Ledger, readings: Readings) -> None:
    """Draw who reads what, once."""
    config = readings.config
    slide_ids = [row.slide_id for row in ledger.slides(readings.study_id, state="done", limit=1_000_000)]
    readers = len(config.readers)
    st.info(
        f"The readings are not laid out yet: {readers} {'reader' if readers == 1 else 'readers'}, "
        f"arms {', '.join(config.arms)}, {len(slide_ids):,} slides are done."
    )
    if not current_person().may(Action.COORDINATE) or not slide_ids:
        return
    with st.popover("Lay out the readings …", icon=":material/event_list:"):
        st.caption("The order is drawn by the study's seed. It is laid out once and stays so; later slides stay out.")
        who_and_why = ask_who_and_why("lay_out", f"Lay out the readings of {len(slide_ids):,} slides")
    if who_and_why is None:
        return
    require(current_person(), Action.COORDINATE)
    actor, why = who_and_why
    seed = study_seed(ledger, readings.study_id)
    readings.begin(lay_out(config, slide_ids, seed), actor=actor, why=why)
    done(found, "The readings are laid out.")


def study_seed(ledger: Ledger, study_id: str) -> int:
    """The seed of the frozen protocol."""
    return int(json.loads(ledger.study(study_id).protocol)["study"].get("seed", 0))


def _adjudication(found: StudyLedger, readings: Readings) -> None:
    """Slides on which readers disagree: who decides, and the way to give them to who does."""
    config = readings.config
    if not config.adjudicators:
        return
    queue = readings.of_arm(ADJUDICATION)
    columns = (Column("Slide"), Column("Adjudicator"), Column("State"), Column("Signed (UTC)", "fixed"))
    rows = [(row.slide_id, row.reader, row.state, time_text(row.signed_utc)) for row in queue]
    if rows:
        st.html(html_tables.beside({"Adjudication": table(columns, rows, label="Adjudication")}))
    if not current_person().may(Action.COORDINATE):
        return
    with st.popover("Give disagreements to the adjudicators …", icon=":material/balance:"):
        names = [each.name for each in config.questions if each.kind != "text"]
        question = st.selectbox("Question", names, key="adjudicate_question")
        arm = st.selectbox("Arm", config.arms, key="adjudicate_arm")
        st.caption("Slides on which signed readings give different answers; each goes to an adjudicator once.")
        who_and_why = ask_who_and_why("adjudicate", "Start adjudication")
    if who_and_why is None or question is None or arm is None:
        return
    require(current_person(), Action.COORDINATE)
    actor, why = who_and_why
    given = readings.adjudicate(question, arm, actor=actor, why=why)
    done(found, f"{len(given)} {'slide goes' if len(given) == 1 else 'slides go'} to the adjudicators.")
