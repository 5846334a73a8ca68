"""Page for a browser that has not signed in, on the way to the identity provider and back."""

from __future__ import annotations

import streamlit as st

from pathology_app.html.text import as_markdown
from pathology_app.people.person import VISITOR_HEADER
from pathology_app.people.sign_in import current_sign_in
from pipeline.units import RESEARCH_USE
from training.foundation.errors import GemslideError

_LEAVE = "export default ({ data }) => { window.location.replace(new URL(data.path, window.location.origin).href); };"


def page() -> None:
    """Start or finish a sign-in at the provider, as the link says."""
    st.markdown(f"**gemslide** &nbsp; :red[{RESEARCH_USE}]")
    sign_in, _ = current_sign_in(st.context.headers.get(VISITOR_HEADER))
    step = st.query_params.get("sign-in")
    if sign_in is None or sign_in.provider is None or step not in ("start", "done"):
        st.info("You are signed out.")
        _again("Sign in")
    elif step == "start":
        st.markdown("Asking your institution who you are …")
        st.login()
    else:
        _come_back()


def _come_back() -> None:
    sign_in, _ = current_sign_in(st.context.headers.get(VISITOR_HEADER))
    assert sign_in is not None
    try:
        account, token = sign_in.exchange(st.user.to_dict())
    except GemslideError as error:
        st.error(as_markdown(error))
        _again("Try again")
        return
    st.markdown(f"Signed in as {as_markdown(account.name)}.")
    _leave_for(f"/?token={token}")


def _leave_for(path: str) -> None:
    """Send the browser to one of our paths that is not a Streamlit page."""
    st.components.v2.component("gemslide_leave", js=_LEAVE)(key="leave", data={"path": path})


def _again(label: str) -> None:
    st.html(f'<p><a href="/sign-in" target="_self">{label}</a></p>')
