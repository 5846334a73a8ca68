"""The script Streamlit runs for every session: the frame of each page, and the choice of page."""

from __future__ import annotations

from urllib.parse import parse_qsl

import streamlit as st

from pathology_app.app_pages import signing_in, who
from pathology_app.app_pages.calibration import TITLE as CHECK_SCREEN
from pathology_app.app_pages.declared import begin_page, draw_page, find_page, watch_visibility
from pathology_app.app_pages.unknown import TITLE as NO_SUCH_PAGE
from pathology_app.html.style import STYLE
from pathology_app.html.text import READ_ERRORS, as_markdown, as_text, message_of
from pathology_app.links.log import LOG
from pathology_app.links.runs import PAGE as RUNS
from pathology_app.page_table import PAGES, SLIDE_PATH
from pathology_app.people.person import SignedOutError
from pathology_app.people.visitor import current_person
from pathology_app.project.served import served_project
from pathology_app.serving.interpreter import first_page_is_drawn
from pathology_app.viewer.component import follow_links
from training.foundation.errors import GemslideError

# The slide gets the height Streamlit would leave empty. Captions are readable (4.5 : 1). Parts that are still loading
# say so, in place of a grey bar.
_STYLE = """
<style>
.stMainBlockContainer { padding: 1rem 1.5rem 1rem; }
.stAppHeader { display: none; }
/* It would skip nothing: the app's header and lists are all in the main part. */
[data-testid="stSkipToContent"] { display: none; }
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
    """Go to the page that a link's query names. The path stays, so that the browser's Back returns here."""
    st.query_params.from_dict(dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True)))


TITLES = {"compare": "Side by side", LOG: "Log", "study": "Studies", "check": CHECK_SCREEN}
"""By the word in the link that names the page."""


def _nothing() -> None:
    """Draw nothing: pages are drawn by `_draw`, which first checks what may be shown."""


WORKLIST = st.Page(_nothing, title="Worklist", url_path="worklist", default=True)
SLIDE = st.Page(lambda: _nothing(), title="Slide", url_path=SLIDE_PATH)


def _title() -> str:
    """Title of the browser's tab: several are open at a time, and a screen reader reads it first."""
    query = st.query_params
    name = query.get("slide") or query.get("study_slide") or (query.get("study") and f"Study {query['study']}")
    if not name and query.get("page") == RUNS:
        name = f"Run {query['run']}" if query.get("run") else "Runs"
    if not name and find_page(PAGES, query.to_dict()).name == "unknown":
        name = NO_SUCH_PAGE
    other = next((title for page, title in TITLES.items() if page in query), "Worklist")
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
        st.error("Access cannot be checked right now. Ask the app's operator, and reload the page.")
        return
    _draw(page is SLIDE)
    follow_links(go)
    first_page_is_drawn()


def _draw(is_slide: bool) -> None:
    """Draw the page that the link names; nothing if it cannot be checked what may be shown.

    Args:
        is_slide: the link's path names the page of a slide.
    """
    query = {**st.query_params.to_dict(), **({SLIDE_PATH: st.query_params.get("slide", "")} if is_slide else {})}
    try:
        visibility = begin_page()
    except READ_ERRORS as error:
        st.header(TITLES.get(find_page(PAGES, query).name, "Worklist"), anchor=False)
        st.error(as_markdown(message_of(error, served_project().root)))
        watch_visibility(None)
        return
    is_drawn = draw_page(PAGES, query, visibility, WORKLIST)
    if not is_drawn and st.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="to_worklist"):
        st.switch_page(WORKLIST, query_params={})
    watch_visibility(visibility)


main()
