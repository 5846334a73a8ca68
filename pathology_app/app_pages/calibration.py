"""Page for checking a screen before slides are viewed on it: ?check=screen."""

from __future__ import annotations

import streamlit as st

from pathology_app.readings.blinding import Visibility
from pathology_app.viewer.component import calibration

TITLE = "Check this screen"


def page(worklist: st.Page, _: Visibility) -> None:
    """Draw the page."""
    if st.button("Worklist", icon=":material/arrow_back:", type="tertiary", key="back"):
        st.switch_page(worklist, query_params={})
    st.markdown(f"#### {TITLE}")
    st.markdown(
        "Sit where you usually view slides, in the same lighting. This page helps you notice a screen that shows "
        "slides wrongly; it measures nothing and does not make a screen fit for diagnosis."
    )
    calibration(key="calibration")
