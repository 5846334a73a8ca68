"""Parsing of links below the viewer's routes."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from pathology_app.slides.cache import BadLinkError


async def bad_link(request: Request) -> Response:
    """Refuse links below ours that name nothing: otherwise Streamlit would answer with its page."""
    raise BadLinkError(f"{request.url.path!r}: not a link of the viewer")


def match_link(request: Request, pattern: str, form: str) -> tuple[str, ...]:
    """The groups of a pattern that the whole last part of a link must match.

    Raises:
        BadLinkError: it does not; `form` is the expected form.
    """
    rest: str = request.path_params["rest"]
    match = re.fullmatch(pattern, rest, re.ASCII)
    if not match:
        raise BadLinkError(f"{rest!r}: expected {form}")
    return match.groups()


def numbers_of(request: Request, pattern: str, form: str) -> tuple[int, ...]:
    """The groups as numbers. Raises BadLinkError as `match_link`."""
    return tuple(int(text) for text in match_link(request, pattern, form))
