"""Check whether a page's browser runs on this computer."""

from __future__ import annotations

import streamlit as st

from pathology_app.access.senders import FORWARDED


def is_local_browser() -> bool:
    """Whether the page's browser runs on this computer, not behind a proxy. Only then may a page name folders."""
    # Streamlit gives no address for this computer's own.
    return st.context.ip_address is None and not any(name in st.context.headers for name in FORWARDED)
