"""The studies of the project: all of them, or the one that the link names."""

from __future__ import annotations

import streamlit as st

from pathology_app import study_lists
from pathology_app.access.acting import note_refused
from pathology_app.access.people import current_person
from pathology_app.access.seeing import may_see, may_see_study
from pathology_app.app_pages import reading, readings_overview, study_failures, study_overview, study_slide
from pathology_app.app_pages.study_actions import last_said
from pathology_app.app_pages.study_navigation import Place, current_link, link_button, say
from pathology_app.study_ledger import StudyLedger, current_study_ledger
from pathology_app.study_link import StudyLink
from pathology_app.text import READ_ERRORS, as_markdown
from pipeline.errors import BadManifestError
from pipeline.study.ledger import Ledger


def page(worklist: st.Page) -> None:
    """Draw what the link names; what is wrong with the ledger is one message."""
    link = current_link()
    _way_up(worklist, link)
    last_said()
    try:
        found = current_study_ledger()
        ledger = found.ledger()
        if ledger is None:
            st.info("No study has begun in this project. `gemslide study init` and `gemslide study run` begin one.")
        elif link.study:
            _check(link)
            _draw(found, ledger, link)
        else:
            _list(ledger)
    except READ_ERRORS as error:
        say(error)


def studies_link(place: Place) -> None:
    """The way from the worklist, where the project's ledger has studies. A ledger that is away is said."""
    try:
        person = current_person()
        names = [name for name in current_study_ledger().names() if may_see_study(person, name)]
    except READ_ERRORS as error:
        say(error)
        return
    if len(names) == 1:
        link_button(place, f"Study {as_markdown(names[0])}", StudyLink(names[0]).query(), key="to_studies", icon=_ICON)
    elif names:
        link_button(place, f"Studies ({len(names)})", StudyLink("").query(), key="to_studies", icon=_ICON)


_ICON = ":material/assignment:"


def _check(link: StudyLink) -> None:
    """Refuse other people's studies and slides, in the words for what is not there."""
    person = current_person()
    if link.slide is not None and may_see(person, link.slide):
        return
    if link.slide is not None or not may_see_study(person, link.study):
        note_refused("hidden slide", link.slide or f"study {link.study}")
        raise BadManifestError(f"study {link.study}: not in this ledger, or this slide is not in it.")


def _draw(found: StudyLedger, ledger: Ledger, link: StudyLink) -> None:
    if link.slide is not None:
        study_slide.draw(found, ledger, link)
    elif link.view == "failures":
        study_failures.draw(found, ledger, link)
    elif link.view == "readings":
        readings_overview.draw(found, ledger, link)
    elif link.view == "read":
        reading.draw(found, ledger, link)
    else:
        study_overview.draw(found, ledger, link)


def _way_up(worklist: st.Page, link: StudyLink) -> None:
    """Where the page lies, and the ways up."""
    row = st.container(horizontal=True, vertical_alignment="center", gap="medium")
    if row.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="to_worklist"):
        st.switch_page(worklist, query_params={})
    if link.study:
        link_button(row, "Studies", StudyLink("").query(), key="to_studies")
    if link.study and (link.slide is not None or link.view == "read"):
        link_button(row, f"Study {as_markdown(link.study)}", StudyLink(link.study).query(), key="to_study")


def _list(ledger: Ledger) -> None:
    """All studies; a row leads to one."""
    st.header("Studies", anchor=False)
    person = current_person()
    rows = [each for each in ledger.studies() if may_see_study(person, each[0].study_id)]
    st.html(study_lists.studies_html(rows))
