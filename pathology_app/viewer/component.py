"""Streamlit components: the code that runs in the browser.

Import only from a running Streamlit script: components register with its runtime.

The module is fetched from our own route and not from Streamlit's component folder: that folder is found
through an installed package with the distribution's name, which an editable `gemslide` does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
"""Height reserved while the search box loads."""

_slide_viewer = _component("gemslide_viewer", "slideViewer")
_compare_viewer = _component("gemslide_compare", "compareViewer")
_reading_clock = _component("gemslide_clock", "readingClock")
_follow_links = _component("gemslide_links", "followLinks")
_search_box = _component("gemslide_search", "searchBox")
_signed_form = _component("gemslide_questions", "questionnaire")
_calibration = _component("gemslide_calibration", "calibration")


def _message(key: str, what: str) -> object:
    """Message of a component during its callback; None if the browser's message lacks it."""
    component = st.session_state.get(key)
    return component.get(what) if isinstance(component, Mapping) else None


def slide_viewer(data: dict[str, Any], *, key: str, on_click: Callable[[object], None]) -> None:
    """Show a slide. `on_click` is called with the position: anything that a browser can send."""
    _slide_viewer(key=key, data=data, on_click_change=lambda: on_click(_message(key, "click")))


def compare_viewer(data: dict[str, Any], *, key: str, on_change: Callable[[object], None]) -> None:
    """Show two to four slides side by side (frontend/src/types.ts, CompareData).

    Args:
        on_change: called when a view is to be added, removed or given another model: anything that a browser can send.
    """
    _compare_viewer(key=key, data=data, on_change_change=lambda: on_change(_message(key, "change")))


def calibration(*, key: str) -> None:
    """Show patterns for checking a screen."""
    _calibration(key=key, data={})


def reading_clock(url: str, *, key: str) -> None:
    """Measure how long a reading without a slide is open in a visible tab.

    Args:
        url: receives the time (tiles/review_routes.py).
    """
    _reading_clock(key=key, data={"url": url})


def signed_form(
    data: dict[str, Any], *, key: str, on_keep: Callable[[object], None], on_sign: Callable[[object], None]
) -> None:
    """Ask questions that end with a signature (frontend/src/reading/form_model.ts, FormData).

    Args:
        on_keep, on_sign: called with the answers to keep or sign: anything that a browser can send.
    """
    _signed_form(
        key=key,
        data=data,
        on_keep_change=lambda: on_keep(_message(key, "keep")),
        on_sign_change=lambda: on_sign(_message(key, "sign")),
    )


def follow_links(go: Callable[[str], None]) -> None:
    """Follow the links drawn by `html_tables.Link`: `go` is called with a link's query ("?slide=S-1")."""
    key = "links"
    _follow_links(key=key, data={}, on_go_change=lambda: go(str(_message(key, "go") or "")))


def search_box(
    label: str, value: str, find: Callable[[str], None], *, key: str, placeholder: str, max_length: int
) -> None:
    """Draw a field that calls `find` with its content during typing."""
    data = {"label": label, "value": value, "placeholder": placeholder, "max_length": max_length}

    def on_find() -> None:
        find(str(_message(key, "find") or "")[:max_length])

    _search_box(key=key, data=data, height=_SEARCH_PX, on_find_change=on_find)
