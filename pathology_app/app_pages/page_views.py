"""Views of slides by pages: checked and logged before anything is drawn."""

from __future__ import annotations

import streamlit as st

from pathology_app.access.views import check_slide, ledger_of, log, remember
from pathology_app.people.person import VISITOR_HEADER, Person
from pathology_app.people.sign_in import current_sign_in
from pathology_app.people.visitor import current_person

_OPENED = "views_logged"


def log_view(slide_id: str, page: str, **details: str | None) -> Person:
    """Let the person at the page that runs see a slide, and log that, once for each opening.

    Args:
        page: a word for what shows it: "slide", "compare".
        details: what else the log says, as `model`; None is left out.

    Returns:
        Who it is.

    Raises:
        HiddenSlideError: not theirs to see. SignedOutError: nobody is signed in.
        GemslideError: where people sign in, it cannot be logged.
    """
    person = current_person()
    sign_in, key = current_sign_in(st.context.headers.get(VISITOR_HEADER))
    check_slide(sign_in, person, slide_id)
    opened = {"page": page, **{name: value for name, value in details.items() if value is not None}}
    said = (person.actor, slide_id, page)
    logged: set[tuple[str, str, str]] = st.session_state.setdefault(_OPENED, set())
    if said not in logged:
        # One opening ends where another slide is opened in its place.
        logged -= {each for each in logged if each[2] == page and page != "compare"}
        log(ledger_of(sign_in), person, slide_id, opened)
        remember(key, slide_id)
        logged.add(said)
    return person


def check_slide_here(slide_id: str) -> None:
    """Refuse a slide that is not to be seen by the person at the page that runs, before anything of it is read.

    Raises: as `log_view`.
    """
    sign_in, _ = current_sign_in(st.context.headers.get(VISITOR_HEADER))
    check_slide(sign_in, current_person(), slide_id)
