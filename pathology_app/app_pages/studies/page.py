"""The studies of the project: all of them, or the one that the link names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from pathology_app.access.visibility import may_see, may_see_study
from pathology_app.app_pages.declared import DeclaredPage, draw_page
from pathology_app.app_pages.navigation import Place, current_link, link_button, say
from pathology_app.app_pages.studies import failures as study_failures
from pathology_app.app_pages.studies import lists as study_lists
from pathology_app.app_pages.studies import overview as study_overview
from pathology_app.app_pages.studies import reading
from pathology_app.app_pages.studies import readings as readings_overview
from pathology_app.app_pages.studies import slide as study_slide
from pathology_app.app_pages.studies.actions import last_message
from pathology_app.html.text import READ_ERRORS, as_markdown
from pathology_app.links.studies import StudyLink
from pathology_app.people.actions import log_refusal
from pathology_app.people.visitor import current_person
from pathology_app.project.ledger import current_study_ledger
from pathology_app.readings.blinding import Shows, Visibility
from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import Ledger


def page(worklist: st.Page, visibility: Visibility) -> None:
    """Draw the page that the link names; an error of the ledger is one message."""
    link = current_link()
    _way_up(worklist, link)
    last_message()
    try:
        study_ledger = current_study_ledger()
        ledger = study_ledger.ledger()
        if ledger is None:
            st.info("No study has begun in this project. Use `gemslide study init` and `gemslide study run`.")
        elif link.study:
            _check(link)
            draw_page(VIEWS, _query(link), visibility, study_ledger, ledger, link)
        else:
            _list(ledger, visibility)
    except READ_ERRORS as error:
        say(error)


def studies_link(place: Place) -> None:
    """Draw the worklist's link to the studies, if the ledger has any. An unavailable ledger is reported."""
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
    """Refuse studies and slides of others, with the message for missing ones."""
    person = current_person()
    if link.slide is not None and may_see(person, link.slide):
        return
    if link.slide is not None or not may_see_study(person, link.study):
        log_refusal("hidden slide", link.slide or f"study {link.study}")
        raise BadManifestError(f"study {link.study}: not in this ledger, or this slide is not in it.")


def _query(link: StudyLink) -> dict[str, str]:
    """Query by which `VIEWS` are named."""
    return {"view": link.view if link.slide is None else "slide"}


def _is(name: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda query: query["view"] == name


VIEWS = (
    DeclaredPage("study slide", _is("slide"), Shows.PREDICTION, study_slide.draw, redacts=True),
    DeclaredPage("failures", _is("failures"), Shows.MODEL, study_failures.draw),
    DeclaredPage("readings", _is("readings"), Shows.RESULT, readings_overview.draw, redacts=True),
    DeclaredPage("read", _is("read"), Shows.RESULT, reading.draw, redacts=True),
    DeclaredPage("overview", lambda query: True, Shows.MODEL, study_overview.draw, redacts=True),
)
"""Views of one study. Stages are named after models."""


def _way_up(worklist: st.Page, link: StudyLink) -> None:
    """Draw links to the pages above this one."""
    row = st.container(horizontal=True, vertical_alignment="center", gap="medium")
    if row.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="to_worklist"):
        st.switch_page(worklist, query_params={})
    if link.study:
        link_button(row, "Studies", StudyLink("").query(), key="to_studies")
    if link.study and (link.slide is not None or link.view == "read"):
        link_button(row, f"Study {as_markdown(link.study)}", StudyLink(link.study).query(), key="to_study")


def _list(ledger: Ledger, visibility: Visibility) -> None:
    """Draw all studies; a row links to its study."""
    st.header("Studies", anchor=False)
    person = current_person()
    rows = [row for row in ledger.studies() if may_see_study(person, row[0].study_id)]
    st.html(study_lists.studies_html(rows, visibility.without_names))
