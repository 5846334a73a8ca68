"""Above every page: who is signed in, the way out, and the log for those who may see it."""

from __future__ import annotations

import streamlit as st

from pathology_app import html_tables
from pathology_app.access.people import Person
from pathology_app.app_pages.access_log import log_link
from pipeline.units import RESEARCH_USE


def head(person: Person) -> None:
    """Draw it."""
    row = st.container(horizontal=True, vertical_alignment="center")
    row.markdown(f"**gemslide** &nbsp; :red[{RESEARCH_USE}]")
    row.space("stretch")
    log_link(row, person)
    if person.name is not None:
        row.html(html_tables.way_out(person.name, "/sign-out", "Sign out"), width="content")
