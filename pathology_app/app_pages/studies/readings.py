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


def draw(study_ledger: StudyLedger, ledger: Ledger, link: StudyLink, visibility: Visibility) -> None:
    """Draw the progress. Raises: as the ledger."""
    row = ledger.study(link.study)
    draw_heading(study_ledger, ledger, row, link, study_ledger.progress(ledger, link.study).counts, visibility)
    readings = readings_of(ledger, link.study)
    if readings is None:
        st.info("This study has no readings: its protocol has no [reading].")
        return
    if readings.config.note:
        st.caption(as_markdown(visibility.without_names(readings.config.note)))
    person, progress = current_person(), progress_of_readers(readings)
    if not progress:
        _lay_out(study_ledger, ledger, readings)
        return
    if person.may(Action.READ) or person.may(Action.ADJUDICATE):
        link_button(st.container(), "Read", StudyLink(link.study, "read").query(), key="to_reading", icon=_READ_ICON)
    sees_others = may_see_others(person, readings)
    shown = progress if sees_others else [row for row in progress if row.reader == person.reader]
    st.html(html_tables.beside({"Readers": reading_rows.progress_html(shown)}))
    if sees_others and (visibility.first is None or person.reader is None):
        _adjudication(study_ledger, readings)


def _lay_out(study_ledger: StudyLedger, ledger: Ledger, readings: Readings) -> None:
    """Draw the form that assigns the readings, once."""
    config = readings.config
    slide_ids = slides_to_read(ledger, readings.study_id)
    st.info(
        f"The readings are not laid out yet: {counted(len(config.readers), 'reader')}, "
        f"arms {', '.join(config.arms)}, {counted(len(slide_ids), 'slide is', 'slides are')} done."
    )
    if not is_allowed(Act.LAY_OUT) or not slide_ids:
        return
    with st.popover("Lay out the readings …", icon=":material/event_list:"):
        st.caption("The study's seed determines the order. It is fixed once laid out; later slides are left out.")
        who_and_why = ask_who_and_why("lay_out", f"Lay out the readings of {counted(len(slide_ids), 'slide')}")
    if who_and_why is None:
        return
    actor, why = who_and_why
    with logging_refusal(Act.LAY_OUT) as person:
        lay_out_readings(person, ledger, readings, actor=actor, why=why)
    done(study_ledger, "The readings are laid out.")


def _adjudication(study_ledger: StudyLedger, readings: Readings) -> None:
    """Draw the slides on which readers disagree, their adjudicators, and the form that assigns them."""
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
        names = [question.name for question in config.questions if question.kind != "text"]
        question_name = st.selectbox("Question", names, key="adjudicate_question")
        arm = st.selectbox("Arm", config.arms, key="adjudicate_arm")
        st.caption("Slides whose signed readings give different answers; each goes to an adjudicator once.")
        who_and_why = ask_who_and_why("adjudicate", "Start adjudication")
    if who_and_why is None or question_name is None or arm is None:
        return
    actor, why = who_and_why
    with logging_refusal(Act.GIVE_DISAGREEMENTS) as person:
        given = give_disagreements(person, readings, question_name, arm, actor=actor, why=why)
    done(study_ledger, f"{counted(len(given), 'slide goes', 'slides go')} to the adjudicators.")
