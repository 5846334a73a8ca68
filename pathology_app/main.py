"""The script Streamlit runs for every session: the frame of each page, and which page it is."""

from __future__ import annotations

from urllib.parse import parse_qsl

import streamlit as st

from pathology_app.access.people import SignedOutError, current_person
from pathology_app.app_pages import access_log, calibration, compare, runs, signing_in, slide, studies, who, worklist
from pathology_app.html_style import STYLE
from pathology_app.interpreter import first_page_is_drawn
from pathology_app.log_link import LOG
from pathology_app.run_link import PAGE as RUNS
from pathology_app.text import as_text
from pathology_app.viewer.component import follow_links
from pipeline.errors import GemslideError

# The slide gets the height Streamlit would leave empty. Captions can be read (4.5 : 1). What is still on its way says
# so, in place of a grey bar.
_STYLE = """
<style>
.stMainBlockContainer { padding: 1rem 1.5rem 1rem; }
.stAppHeader { display: none; }
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p { color: var(--gs-faint); opacity: 1; }
[data-testid="stSkeleton"] { background: none; animation: none; color: var(--gs-faint); font-size: 0.875rem; }
[data-testid="stSkeleton"]::before { content: "Loading…"; }
.stCheckbox label { min-height: 32px; align-items: center; }
.stMainBlockContainer h2 { padding: 0; font-size: 1.5rem; }
@media (prefers-color-scheme: dark) {
  /* Streamlit writes white on them, 2.4 : 1. */
  [data-testid^="stBaseButton-primary"]:not(:disabled) p { color: #12151c; }
}
</style>
"""


def go(query: str) -> None:
    """Leave for what a link's query names. The path stays, so that the browser's Back comes back here."""
    st.query_params.from_dict(dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True)))


WORKLIST = st.Page(worklist.page, title="Worklist", url_path="worklist", default=True)
SLIDE = st.Page(lambda: slide.page(WORKLIST), title="Slide", url_path="slide")


def _title() -> str:
    """Of the browser's tab: several are open at a time, and a screen reader says it first."""
    query = st.query_params
    name = query.get("slide") or query.get("study_slide") or (query.get("study") and f"Study {query['study']}")
    if not name and query.get("page") == RUNS:
        name = f"Run {query['run']}" if query.get("run") else "Runs"
    others = {"compare": "Side by side", LOG: "Log", "study": "Studies", "check": calibration.TITLE}
    other = next((title for page, title in others.items() if page in query), "Worklist")
    return f"{as_text(name or other)[:80]} · gemslide"


def main() -> None:
    """Draw the frame, then the page."""
    st.set_page_config(page_title=_title(), layout="wide", initial_sidebar_state="collapsed")
    st.html(_STYLE + STYLE)
    page = st.navigation([WORKLIST, SLIDE], position="hidden")
    try:
        who.head(current_person())
    except SignedOutError:
        signing_in.page()
        return
    except GemslideError:
        st.error("Who may see this cannot be known now. Ask who runs this app, and reload the page.")
        return
    _draw(page)
    follow_links(go)
    first_page_is_drawn()


def _draw(page: st.Page) -> None:
    """What the link names."""
    if page is WORKLIST and "slide" in st.query_params:
        slide.page(WORKLIST)
    elif page is WORKLIST and "compare" in st.query_params:
        compare.page(WORKLIST)
    elif page is WORKLIST and LOG in st.query_params:
        access_log.page(WORKLIST)
    elif page is WORKLIST and "study" in st.query_params:
        studies.page(WORKLIST)
    elif page is WORKLIST and "check" in st.query_params:
        calibration.page(WORKLIST)
    elif page is WORKLIST and st.query_params.get("page") == RUNS:
        runs.page(WORKLIST)
    else:
        page.run()


main()
