"""Paths that are served, and what may be sent there: only to a path whose route declares it (`declared.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pathology_app.people.person import Action
from pathology_app.people.provider import CALLBACK

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
WEBSOCKET = "/_stcore/stream"
PAGES = ("/", "/worklist", "/slide")
"""Paths that links on other sites may lead to."""
READING = ("GET", "HEAD", "OPTIONS")
FOLDERS = (
    "static tiles colour annotations overlays layers damaged thumbnails coverage hotspots crops heatmaps exports "
    "reports registrations viewer ahead opened tray find"
)
SERVED = re.compile(
    rf"/({FOLDERS.replace(' ', '|')})/.*|/favicon\.png|/_stcore/(health|host-config)|/log\.csv", re.ASCII
)
"""Besides the pages and the writable routes. Streamlit's metrics, uploads, media and agent routes are not served."""
PROVIDER = ("/auth/login", CALLBACK)
"""Streamlit's own, served where people sign in elsewhere."""
_BEFORE = re.compile(r"/static/.*|/_stcore/(health|host-config)", re.ASCII)
"""Paths that Streamlit needs to send somebody who is not signed in to the provider."""


@dataclass(frozen=True)
class AcceptedBody:
    """Body that a route accepts.

    Attributes:
        max_bytes: of the body.
        action: the right that the sender needs; None: none, so that strangers may send it, too.
    """

    max_bytes: int
    action: Action | None


@dataclass(frozen=True)
class WritableRoute:
    """A path that accepts a body.

    Attributes:
        path: pattern of whole paths.
        methods: besides GET, HEAD and OPTIONS.
    """

    path: re.Pattern[str]
    methods: tuple[str, ...]
    takes: AcceptedBody


class WritableRoutes:
    """All writable routes of an app, in order: of two for one path, the first counts."""

    def __init__(self, openings: Sequence[WritableRoute] = ()) -> None:
        self._openings = tuple(openings)

    def of(self, path: str) -> WritableRoute | None:
        """Writable route at a path; None where nothing may be sent to it."""
        return next((route for route in self._openings if route.path.fullmatch(path)), None)


def is_served(path: str, *, with_provider: bool) -> bool:
    """Whether anything is served at a path."""
    is_known = path in (*PAGES, SIGN_IN, SIGN_OUT) or SERVED.fullmatch(path) is not None
    return is_known or (with_provider and path in PROVIDER)


def is_before_sign_in(path: str, query: str, *, with_provider: bool) -> bool:
    """Whether a path is served to people who have not signed in, where people do."""
    if path in (SIGN_IN, SIGN_OUT, "/favicon.png"):
        return True
    is_way_out = path in PROVIDER or path == WEBSOCKET or _BEFORE.fullmatch(path) is not None
    return with_provider and (is_way_out or (path == "/" and query in ("sign-in=start", "sign-in=done")))
