"""Rights at pages: checked when something is drawn, and again when it is done; refusals are logged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from pathology_app.people.acts import RIGHTS, Act
from pathology_app.people.person import VISITOR_HEADER, ForbiddenError, Person
from pathology_app.people.sign_in import current_sign_in
from pathology_app.people.visitor import current_person


def is_allowed(act: Act) -> bool:
    """Whether the person at the page may do something, and so is offered it. Raises: as `current_person`."""
    return current_person().may(RIGHTS[act])


@contextmanager
def logging_refusal(act: Act) -> Iterator[Person]:
    """The person at the page, looked up again for an act; a refusal of the act is logged.

    Raises:
        ForbiddenError: as the act. GemslideError: as `current_person`.
    """
    try:
        yield current_person()
    except ForbiddenError:
        log_refusal("forbidden", str(RIGHTS[act]))
        raise


def log_refusal(kind: str, about: str) -> None:
    """Log in the project that the person at the page was refused something."""
    sign_in, _ = current_sign_in(st.context.headers.get(VISITOR_HEADER))
    if sign_in is not None:
        sign_in.refusals.note(current_person().actor, kind, about=about)
