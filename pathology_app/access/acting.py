"""Actions of pages: asked when something is drawn, and again when it is done; what is refused is logged."""

from __future__ import annotations

import streamlit as st

from pathology_app.access.people import VISITOR_HEADER, Action, ForbiddenError, current_person, require
from pathology_app.access.sign_in import sign_in_behind


def may_now(action: Action) -> bool:
    """Whether who looks at the page may do something, and so is offered it. Raises: as `current_person`."""
    return current_person().may(action)


def check_action(action: Action) -> None:
    """Refuse an action at the moment it would be done, whatever was drawn before.

    Raises:
        ForbiddenError: who looks at the page may not do it. GemslideError: as `current_person`.
    """
    try:
        require(current_person(), action)
    except ForbiddenError:
        note_refused("forbidden", str(action))
        raise


def note_refused(kind: str, about: str) -> None:
    """Have the project's log say that who looks at the page was refused something."""
    sign_in, _ = sign_in_behind(st.context.headers.get(VISITOR_HEADER))
    if sign_in is not None:
        sign_in.refusals.note(current_person().actor, kind, about=about)
