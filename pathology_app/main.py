"""The script Streamlit runs for every session: the frame of each page, and which page it is."""

from __future__ import annotations

import streamlit as st

from pathology_app.app_pages import slide, studies, worklist
from pathology_app.html_tables import STYLE
from pipeline.units import RESEARCH_USE

# The slide gets the height Streamlit would leave empty.
_STYLE = """
<style>
.stMainBlockContainer { padding: 1rem 1.5rem 1rem; }
.stAppHeader { display: none; }
</style>
"""


def open_slide(slide_id: str) -> None:
    """Leave the worklist for a slide. The link stays at the root, so that the browser's Back comes back here."""
    st.query_params["slide"] = slide_id
    st.rerun()


WORKLIST = st.Page(lambda: worklist.page(open_slide), title="Worklist", url_path="worklist", default=True)
SLIDE = st.Page(lambda: slide.page(WORKLIST), title="Slide", url_path="slide")


def main() -> None:
    """Draw the frame, then the page."""
    st.set_page_config(page_title="gemslide", layout="wide", initial_sidebar_state="collapsed")
    st.html(_STYLE + STYLE)
    page = st.navigation([WORKLIST, SLIDE], position="hidden")
    st.markdown(f"**gemslide** &nbsp; :red[{RESEARCH_USE}]")
    if page is WORKLIST and "slide" in st.query_params:
        slide.page(WORKLIST)
    elif page is WORKLIST and "study" in st.query_params:
        studies.page(WORKLIST)
    else:
        page.run()


main()
