"""Whether the browser that looks at a page runs on this computer."""

from __future__ import annotations

import streamlit as st

from pathology_app.access.senders import FORWARDED


def is_local_browser() -> bool:
    """Whether it does, with no proxy between that says otherwise. Only then a page may name folders."""
    # Streamlit gives no address for this computer's own.
    return st.context.ip_address is None and not any(name in st.context.headers for name in FORWARDED)
