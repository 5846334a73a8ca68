"""The app's pages without a browser (streamlit's AppTest)."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

import pathology_app
from pipeline.units import RESEARCH_USE

# Every run of an AppTest reads the metadata of all installed packages, which takes four fifths of its time.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)

MAIN = Path(pathology_app.__file__).with_name("main.py")


def open_page(**query: str) -> AppTest:
    page = AppTest.from_file(str(MAIN), default_timeout=30)
    for name, value in query.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception
    assert any(RESEARCH_USE in text.value for text in page.markdown)
    return page


def visible_text(element: Any) -> str:
    """Visible text of fully escaped Markdown."""
    return re.sub(r"\\(.)", r"\1", element.value).replace("\u2060", "")


def html_of(page: AppTest) -> str:
    """Everything rendered as HTML: tables, bars, facts."""
    return "\n".join(element.proto.body for element in page.get("html"))


def linked(page: AppTest) -> list[str]:
    """Link texts in tables that lead to other pages."""
    return [words for _, words in _links(page)]


def hrefs(page: AppTest) -> list[str]:
    """Targets of these links."""
    return [href for href, _ in _links(page)]


def _links(page: AppTest) -> list[tuple[str, str]]:
    matches = re.findall(r'<a class="gs-go"[^>]* href="([^"]*)">(.*?)</a>', html_of(page))
    return [(html.unescape(href), html.unescape(words)) for href, words in matches]


def viewer_data(page: AppTest) -> dict[str, Any]:
    """Data passed to the slide viewer."""
    (viewer,) = (
        element for element in page.get("bidi_component") if element.proto.component_name.endswith("gemslide_viewer")
    )
    data: dict[str, Any] = json.loads(viewer.proto.json)
    return data
