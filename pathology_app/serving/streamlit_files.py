"""Streamlit's own scripts, styles and fonts, from memory.

A browser that is new to the app requests ninety of them before it shows anything, and Streamlit looks each up on disk,
in a thread.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from pathology_app.routes.declared import plain

# Our own table: the system's type for a suffix may be wrong, and browsers run no script of another type.
_MEDIA_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".gif": "image/gif",
}
_HASHED_NAMES = "public, immutable, max-age=31536000"


def streamlit_file_routes() -> list[BaseRoute]:
    """The routes."""
    return [plain("/static/{path:path}", _answer)]


async def _answer(request: Request) -> Response:
    file = _files().get(request.path_params["path"])
    if file is None:
        return PlainTextResponse("Not found. Reload the page.", status_code=404)
    media_type = _MEDIA_TYPES.get(file.suffix)
    return Response(_read(file), media_type=media_type, headers={"Cache-Control": _HASHED_NAMES})


@cache
def _files() -> dict[str, Path]:
    """All files that may be requested, by link: no text from a link becomes a path."""
    folder = Path(st.__file__).parent / "static" / "static"
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


@cache
def _read(file: Path) -> bytes:
    return file.read_bytes()
