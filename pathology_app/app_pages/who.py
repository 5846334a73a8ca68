"""Header of every page: the person signed in, the sign-out link, and the log for those who may see it."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages.navigation import Place, link_button
from pathology_app.html import tables as html_tables
from pathology_app.links.log import LOG
from pathology_app.people.acts import RIGHTS, Act
from pathology_app.people.person import Person
from pipeline.units import RESEARCH_USE


def head(person: Person) -> None:
    """Draw the header."""
    row = st.container(horizontal=True, vertical_alignment="center", key="head")
    row.markdown(f"**gemslide** &nbsp; :red[{RESEARCH_USE}]")
    row.space("stretch")
    _log_link(row, person)
    if person.name is not None:
        row.html(html_tables.external_link(person.name, "/sign-out", "Sign out"), width="content")


def _log_link(place: Place, person: Person) -> None:
    """Link to the log, for those who may see it, where people sign in."""
    if person.name is not None and person.may(RIGHTS[Act.SEE_LOG]):
        link_button(place, "Log", {LOG: ""}, key="to_log", icon=":material/history:")
