"""What runs in the browser, as Streamlit components.

Import only from a running Streamlit script: components register with its runtime.

The module is fetched from our own route and not from Streamlit's component folder: that folder is found
through the installed package of the same name as the distribution, which an editable `gemslide` has not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from pathology_app.viewer.bundle import bundle_path

_LOADER = """
const app = import(new URL("/viewer/{name}", window.location.origin).href);
export default async (component) => (await app).{function}(component);
"""


def _component(name: str, function: str) -> Any:
    js = _LOADER.format(name=bundle_path().name, function=function)
    return st.components.v2.component(name, js=js)


_SEARCH_PX = 72
"""Its place is kept while it loads."""

_slide_viewer = _component("gemslide_viewer", "slideViewer")
_compare_viewer = _component("gemslide_compare", "compareViewer")
_reading_clock = _component("gemslide_clock", "readingClock")
_follow_links = _component("gemslide_links", "followLinks")
_search_box = _component("gemslide_search", "searchBox")
_calibration = _component("gemslide_calibration", "calibration")


def slide_viewer(data: dict[str, Any], *, key: str, on_click: Callable[[], None]) -> None:
    """Show a slide. A click stands, during `on_click`, in `st.session_state[key]["click"]`."""
    _slide_viewer(key=key, data=data, on_click_change=on_click)


def compare_viewer(data: dict[str, Any], *, key: str) -> None:
    """Show two to four slides side by side (frontend/src/types.ts, CompareData)."""
    _compare_viewer(key=key, data=data)


def calibration(*, key: str) -> None:
    """Show patterns to check a screen by."""
    _calibration(key=key, data={})


def reading_clock(url: str, *, key: str) -> None:
    """Count how long a reading without a slide is open in a visible tab.

    Args:
        url: takes that (tiles/review_routes.py).
    """
    _reading_clock(key=key, data={"url": url})


def follow_links(go: Callable[[str], None]) -> None:
    """Follow the links that `html_tables.Link` draws: `go` is called with the query of one ("?slide=S-1")."""
    key = "links"
    _follow_links(key=key, data={}, on_go_change=lambda: go(str(st.session_state[key]["go"])))


def search_box(
    label: str, value: str, find: Callable[[str], None], *, key: str, placeholder: str, max_length: int
) -> None:
    """A field that calls `find` with what is in it, while somebody types."""
    data = {"label": label, "value": value, "placeholder": placeholder, "max_length": max_length}

    def found() -> None:
        find(str(st.session_state[key]["find"])[:max_length])

    _search_box(key=key, data=data, height=_SEARCH_PX, on_find_change=found)
