"""Progress of a study's readings, for its coordinator: readers, washouts, and the slides on which they disagree."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages.navigation import link_button
from pathology_app.app_pages.studies import reading_rows
from pathology_app.app_pages.studies.actions import ask_who_and_why, done
from pathology_app.app_pages.studies.heading import draw_heading
from pathology_app.app_pages.studies.reading_answers import may_see_others
from pathology_app.html import tables as html_tables
from pathology_app.html.tables import Column, table
from pathology_app.html.text import as_markdown, time_text
from pathology_app.links.studies import StudyLink
from pathology_app.people.actions import is_allowed, logging_refusal
from pathology_app.people.acts import Act
from pathology_app.people.person import Action
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import StudyLedger
from pathology_app.readings.acts import give_disagreements, lay_out_readings, slides_to_read
from pathology_app.readings.blinding import Visibility
from pipeline.ledger import Ledger
from pipeline.study import ADJUDICATION, Readings, progress_of_readers, readings_of
from training.foundation.words.counts import counted

_READ_ICON = ":material/visibility:"


def draw(found: StudyLedger, ledger: Ledger, link: StudyLink, visibility: Visibility) -> None:
    """Draw it. Raises: as the ledger."""
    row = ledger.study(link.study)
    draw_heading(found, ledger, row, link, found.progress(ledger, link.study).counts, visibility)
    readings = readings_of(ledger, link.study)
    if readings is None:
        st.info("This study has no readings: its protocol has no [reading].")
        return
    if readings.config.note:
        st.caption(as_markdown(visibility.without_names(readings.config.note)))
    person, progress = current_person(), progress_of_readers(readings)
    if not progress:
        _lay_out(found, ledger, readings)
        return
    if person.may(Action.READ) or person.may(Action.ADJUDICATE):
        link_button(st.container(), "Read", StudyLink(link.study, "read").query(), key="to_reading", icon=_READ_ICON)
    steers = may_see_others(person, readings)
    shown = progress if steers else [each for each in progress if each.reader == person.reader]
    st.html(html_tables.beside({"Readers": reading_rows.progress_html(shown)}))
    if steers and (visibility.first is None or person.reader is None):
        _adjudication(found, readings)


def _lay_out(found: StudyLedger, ledger: Ledger, readings: Readings) -> None:
    """Draw who reads what, once."""
    config = readings.config
    slide_ids = slides_to_read(ledger, readings.study_id)
    st.info(
        f"The readings are not laid out yet: {counted(len(config.readers), 'reader')}, "
        f"arms {', '.join(config.arms)}, {counted(len(slide_ids), 'slide is', 'slides are')} done."
    )
    if not is_allowed(Act.LAY_OUT) or not slide_ids:
        return
    with st.popover("Lay out the readings …", icon=":material/event_list:"):
        st.caption("The order is drawn by the study's seed. It is laid out once and stays so; later slides stay out.")
        who_and_why = ask_who_and_why("lay_out", f"Lay out the readings of {counted(len(slide_ids), 'slide')}")
    if who_and_why is None:
        return
    actor, why = who_and_why
    with logging_refusal(Act.LAY_OUT) as person:
        lay_out_readings(person, ledger, readings, actor=actor, why=why)
    done(found, "The readings are laid out.")


def _adjudication(found: StudyLedger, readings: Readings) -> None:
    """Slides on which readers disagree: who decides, and the way to give them to who does."""
    config = readings.config
    if not config.adjudicators:
        return
    queue = readings.rows_of_arm(ADJUDICATION)
    columns = (Column("Slide"), Column("Adjudicator"), Column("State"), Column("Signed (UTC)", "fixed"))
    rows = [(row.slide_id, row.reader, row.state, time_text(row.signed_utc)) for row in queue]
    if rows:
        st.html(html_tables.beside({"Adjudication": table(columns, rows, label="Adjudication")}))
    if not is_allowed(Act.GIVE_DISAGREEMENTS):
        return
    with st.popover("Give disagreements to the adjudicators …", icon=":material/balance:"):
        names = [each.name for each in config.questions if each.kind != "text"]
        question = st.selectbox("Question", names, key="adjudicate_question")
        arm = st.selectbox("Arm", config.arms, key="adjudicate_arm")
        st.caption("Slides on which signed readings give different answers; each goes to an adjudicator once.")
        who_and_why = ask_who_and_why("adjudicate", "Start adjudication")
    if who_and_why is None or question is None or arm is None:
        return
    actor, why = who_and_why
    with logging_refusal(Act.GIVE_DISAGREEMENTS) as person:
        given = give_disagreements(person, readings, question, arm, actor=actor, why=why)
    done(found, f"{counted(len(given), 'slide goes', 'slides go')} to the adjudicators.")
