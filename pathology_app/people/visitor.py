"""The person at the current page. Import only from pages and what they call."""

from __future__ import annotations

import streamlit as st

from pathology_app.people.person import VISITOR_HEADER, Person
from pathology_app.people.sign_in import person_of_session


def current_person() -> Person:
    """The person at the current page, looked up at each call, since accounts and sessions end.

    Raises:
        SignedOutError: nobody has signed in, and people do here. GemslideError: this cannot be checked now.
    """
    return person_of_session(st.context.headers.get(VISITOR_HEADER))
