"""Views of slides by pages: checked and logged before anything is drawn."""

from __future__ import annotations

import streamlit as st

from pathology_app.access.views import check_slide, ledger_of, log, remember, take_opening
from pathology_app.people.person import VISITOR_HEADER, Person
from pathology_app.people.sign_in import current_sign_in
from pathology_app.people.visitor import current_person

_OPENED = "views_logged"


def log_view(slide_id: str, page: str, **details: str | None) -> Person:
    """Let the person at the current page see a slide, and log the view once per opening.

    Args:
        page: name of the page that shows it: "slide", "compare".
        details: further details to log, such as `model`; None is left out.

    Returns:
        The person.

    Raises:
        HiddenSlideError: the person may not see it. SignedOutError: nobody is signed in.
        GemslideError: people sign in here, and the view cannot be logged.
    """
    person = current_person()
    sign_in, key = current_sign_in(st.context.headers.get(VISITOR_HEADER))
    check_slide(sign_in, person, slide_id)
    opened = {"page": page, **{name: value for name, value in details.items() if value is not None}}
    opening = (person.actor, slide_id, page)
    logged: set[tuple[str, str, str]] = st.session_state.setdefault(_OPENED, set())
    if opening not in logged:
        # An opening ends when another slide is opened in its place.
        logged -= {earlier for earlier in logged if earlier[2] == page and page != "compare"}
        if page != "slide" or not take_opening(key, slide_id):
            log(ledger_of(sign_in), person, slide_id, opened)
        remember(key, slide_id)
        logged.add(opening)
    return person


def check_slide_here(slide_id: str) -> None:
    """Refuse a slide that the person at the current page may not see, before any of it is read.

    Raises: as `log_view`.
    """
    sign_in, _ = current_sign_in(st.context.headers.get(VISITOR_HEADER))
    check_slide(sign_in, current_person(), slide_id)
