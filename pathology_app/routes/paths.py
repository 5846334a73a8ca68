"""Paths that are served, and what may be sent there: only to a path whose route says so (`declared.py`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pathology_app.people.person import Action
from pathology_app.people.provider import CALLBACK

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
WEBSOCKET = "/_stcore/stream"
PAGES = ("/", "/worklist", "/slide")
"""Paths that people may come to by a link from elsewhere."""
READING = ("GET", "HEAD", "OPTIONS")
FOLDERS = (
    "static tiles colour annotations overlays layers damaged thumbnails coverage hotspots crops heatmaps exports viewer"
)
SERVED = re.compile(
    rf"/({FOLDERS.replace(' ', '|')})/.*|/favicon\.png|/_stcore/(health|host-config)|/log\.csv", re.ASCII
)
"""Beside the pages and the openings. Streamlit's metrics, uploads, media and agent routes are not served."""
PROVIDER = ("/auth/login", CALLBACK)
"""Streamlit's own, served where people sign in elsewhere."""
_BEFORE = re.compile(r"/static/.*|/_stcore/(health|host-config)", re.ASCII)
"""Paths that Streamlit needs to send somebody, not yet signed in, to the provider."""


@dataclass(frozen=True)
class AcceptedBody:
    """Body that a route takes.

    Attributes:
        max_bytes: of the body.
        action: the right that the sender needs; None: none, so that strangers may send it, too.
    """

    max_bytes: int
    action: Action | None


@dataclass(frozen=True)
class WritableRoute:
    """A path that takes a body.

    Attributes:
        path: pattern of whole paths.
        methods: beside GET, HEAD and OPTIONS.
    """

    path: re.Pattern[str]
    methods: tuple[str, ...]
    takes: AcceptedBody


class WritableRoutes:
    """All of an app, in the order of its routes: of two for one path, the first counts."""

    def __init__(self, openings: Sequence[WritableRoute] = ()) -> None:
        self._openings = tuple(openings)

    def of(self, path: str) -> WritableRoute | None:
        """Opening at a path; None where nothing may be sent to it."""
        return next((each for each in self._openings if each.path.fullmatch(path)), None)


def is_served(path: str, *, with_provider: bool) -> bool:
    """Whether anything answers under a path."""
    is_known = path in (*PAGES, SIGN_IN, SIGN_OUT) or SERVED.fullmatch(path) is not None
    return is_known or (with_provider and path in PROVIDER)


def is_before_sign_in(path: str, query: str, *, with_provider: bool) -> bool:
    """Whether a path is served to whoever has not signed in, where people do."""
    if path in (SIGN_IN, SIGN_OUT, "/favicon.png"):
        return True
    is_way_out = path in PROVIDER or path == WEBSOCKET or _BEFORE.fullmatch(path) is not None
    return with_provider and (is_way_out or (path == "/" and query in ("sign-in=start", "sign-in=done")))
