"""The viewer on a page. Import only from a running Streamlit script: components register with its runtime.

The module is fetched from our own route and not from Streamlit's component folder: that folder is found
through the installed package of the same name as the distribution, which an editable `gemslide` has not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from pathology_app.viewer.bundle import bundle_path

_LOADER = """
const viewer = import(new URL("/viewer/{name}", window.location.origin).href);
export default async (component) => (await viewer).default(component);
"""

_mount = st.components.v2.component("gemslide_viewer", js=_LOADER.format(name=bundle_path().name))


def slide_viewer(data: dict[str, Any], *, key: str, on_click: Callable[[], None]) -> None:
    """Show a slide. A click stands, during `on_click`, in `st.session_state[key]["click"]`."""
    _mount(key=key, data=data, on_click_change=on_click)
