"""Streamlit's own files, as the app sends them."""

from __future__ import annotations

from pathlib import Path

import pytest
import streamlit as st

from pathology_app.serving.streamlit_files import streamlit_file_routes
from tests.pathology_app.routes_in_process import get_from

FOLDER = Path(st.__file__).parent / "static" / "static"


def test_every_file_is_sent_as_what_it_is_and_asked_for_once() -> None:
    kinds = {}
    for path in filter(Path.is_file, FOLDER.rglob("*")):
        answer = get_from(streamlit_file_routes(), f"/static/{path.relative_to(FOLDER).as_posix()}")
        assert (answer.status_code, answer.content) == (200, path.read_bytes())
        assert "immutable" in answer.headers["cache-control"]
        kinds[path.suffix] = answer.headers.get("content-type")
    assert kinds[".js"] == "text/javascript; charset=utf-8"
    assert kinds[".css"] == "text/css; charset=utf-8"
    assert kinds[".woff2"] == "font/woff2"
    assert all(kinds.values())


@pytest.mark.parametrize(
    "path",
    [
        "",
        "js",
        "js/nothing.js",
        "../index.html",
        "..%2Findex.html",
        "%2Fetc%2Fpasswd",
        "js/..%2F..%2Findex.html",
        "a%00b",
    ],
)
def test_nothing_else_is_sent(path: str) -> None:
    assert get_from(streamlit_file_routes(), f"/static/{path}").status_code == 404
