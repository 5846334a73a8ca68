"""Answer to a link that names no page of the app: ?page=nosuch."""

from __future__ import annotations

import re
from collections.abc import Mapping

import streamlit as st

from pathology_app.html.text import as_markdown
from pathology_app.readings.blinding import Visibility

TITLE = "No such page"
_PAGE_NUMBER = re.compile(r"\d*", re.ASCII)
_MAX_SHOWN = 60


def is_unknown(query: Mapping[str, str]) -> bool:
    """Whether a link's `page` is neither a page's name nor the number of a page of a list."""
    return _PAGE_NUMBER.fullmatch(query.get("page", "")) is None


def page(worklist: st.Page, _: Visibility) -> None:
    """Draw the page."""
    st.header(TITLE, anchor=False)
    name = str(st.query_params.get("page", ""))
    shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…"
    st.warning(as_markdown(f"This app has no page named “{shown}”. Check the link, or go on from the worklist."))
    if st.button("Worklist", icon=":material/arrow_back:", key="to_worklist"):
        st.switch_page(worklist, query_params={})
