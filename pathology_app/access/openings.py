"""What is served, and what may be sent there: a path that stands here takes a body, and nothing else does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pathology_app.access.people import Action
from pathology_app.access.provider import CALLBACK
from pathology_app.access.sign_in_routes import SIGN_IN, SIGN_OUT
from pathology_app.annotating.bodies import MAX_CHANGES_BYTES, MAX_IMPORT_BYTES

WEBSOCKET = "/_stcore/stream"
PAGES = ("/", "/worklist", "/slide")
"""Where people may come to by a link from elsewhere."""
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
"""What Streamlit needs to send somebody to the provider, who is not signed in then."""


@dataclass(frozen=True)
class Opening:
    """A path that takes more than questions.

    Attributes:
        path: pattern of whole paths.
        methods: beside GET, HEAD and OPTIONS.
        max_body_bytes: of a request by one of those methods.
        action: what must be allowed to whoever sends such a request; None: nothing, also to strangers.
    """

    path: re.Pattern[str]
    methods: tuple[str, ...]
    max_body_bytes: int
    action: Action | None


MAX_REVIEWED_BYTES = 2**16
"""Of what was looked at, and of what is thought of hotspots."""
OPENINGS = (
    Opening(re.compile(re.escape(SIGN_IN)), ("POST",), 16_384, None),
    Opening(re.compile(re.escape(SIGN_OUT)), ("POST",), 4_096, None),
    Opening(re.compile(r"/annotations/[^/]+(/join|/split)?"), ("POST",), MAX_CHANGES_BYTES, Action.ANNOTATE),
    Opening(re.compile(r"/annotations/[^/]+/import"), ("POST",), MAX_IMPORT_BYTES, Action.ANNOTATE),
    Opening(re.compile(r"/coverage/.+"), ("POST",), MAX_REVIEWED_BYTES, Action.LOOK),
    Opening(re.compile(r"/hotspots/.+"), ("POST",), MAX_REVIEWED_BYTES, Action.ANNOTATE),
)


def opening_of(path: str) -> Opening | None:
    """What may be sent to a path; None where nothing may."""
    return next((each for each in OPENINGS if each.path.fullmatch(path)), None)


def is_served(path: str, *, with_provider: bool) -> bool:
    """Whether anything answers under a path."""
    is_known = path in PAGES or opening_of(path) is not None or SERVED.fullmatch(path) is not None
    return is_known or (with_provider and path in PROVIDER)


def is_before_sign_in(path: str, query: str, *, with_provider: bool) -> bool:
    """Whether a path is served to whoever has not signed in, where people do."""
    if path in (SIGN_IN, SIGN_OUT, "/favicon.png"):
        return True
    is_way_out = path in PROVIDER or path == WEBSOCKET or _BEFORE.fullmatch(path) is not None
    return with_provider and (is_way_out or (path == "/" and query in ("sign-in=start", "sign-in=done")))
