"""The guard: one ASGI middleware in front of Streamlit's routes and ours, HTTP and WebSocket alike.

It asks in this order: is the app called by one of its own names, by a page of its own, for something that is
served, by somebody who is logged in? Streamlit's own check of a WebSocket's Origin comes later and is content
with what passes here; for other origins it would ask the internet for this computer's address.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pathology_app.access.frames import without_script_path
from pathology_app.access.headers import with_security_headers
from pathology_app.access.names import Names, is_loopback
from pathology_app.access.refusal import RefusedError, answer
from pathology_app.access.tokens import SESSION_S, Login
from pathology_app.annotating.bodies import MAX_CHANGES_BYTES, MAX_IMPORT_BYTES

MAX_WEBSOCKETS = 200
"""Open tabs, in the whole process."""

PAGES = ("/", "/worklist", "/slide")
WEBSOCKET = "/_stcore/stream"
_FOLDERS = (
    "static tiles colour annotations overlays layers damaged thumbnails coverage hotspots crops heatmaps exports viewer"
)
_SERVED = re.compile(rf"/({_FOLDERS.replace(' ', '|')})/.*|/favicon\.png|/_stcore/(health|host-config)", re.ASCII)
"""Beside the pages. Streamlit's metrics, uploads, media, log-in and agent routes are not served."""

MAX_REVIEWED_BYTES = 2**16
"""Of what was looked at, and of what is thought of hotspots."""
_METHODS = ("GET", "HEAD", "OPTIONS")
_POSTED: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"/annotations/[^/]+(/join|/split)?", re.ASCII), MAX_CHANGES_BYTES),
    (re.compile(r"/annotations/[^/]+/import", re.ASCII), MAX_IMPORT_BYTES),
    (re.compile(r"/(coverage|hotspots)/.+", re.ASCII), MAX_REVIEWED_BYTES),
)
"""What may be sent to the app, and how many bytes at most."""
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")


@dataclass(frozen=True)
class Access:
    """Who may come in.

    Attributes:
        names: the app's own.
        login: takes tokens.
        everybody_logs_in: also callers from this computer; else only those from others.
    """

    login: Login
    names: Names = field(default_factory=Names)
    everybody_logs_in: bool = False


class Guard:
    """Lets through what is meant for this app, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access, script: Path) -> None:
        """Args: script: of Streamlit's app; its folder is told to nobody."""
        self._app, self._access, self._script = app, access, script
        self._websockets = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        send = with_security_headers(send)
        try:
            token = _take_token(scope)
            _check_names(scope, self._access.names)
            _check_sender(scope)
            _check_request(scope)
            if token is not None and scope["type"] == "http" and scope["method"] == "GET":
                await self._log_in(token, scope, receive, send)
                return
            left_s = self._check_login(scope)
            self._check_websockets(scope)
        except RefusedError as refused:
            await answer(refused, scope, receive, send)
            return
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        else:
            await self._serve_websocket(scope, receive, send, left_s)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send, left_s: float | None) -> None:
        """Serve a page's WebSocket until the page or the session ends."""
        self._websockets += 1
        try:
            async with asyncio.timeout(left_s):
                await self._app(scope, receive, without_script_path(send, self._script))
        except TimeoutError:
            await send({"type": "websocket.close", "code": 1008})
        finally:
            self._websockets -= 1

    async def _log_in(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Spend a token for a cookie, and go on to the link without the token.

        Raises:
            RefusedError: the token was spent or never given.
        """
        session = self._access.login.spend(token)
        if session is None:
            raise RefusedError(
                401,
                "link_is_spent",
                "This link was used, or is not of this run of gemslide: each is good once. Ask for the link that "
                "stands on the terminal now. If you have just used it in this browser, go on to the worklist.",
            )
        query = scope["query_string"].decode("ascii")
        response = RedirectResponse("/" + (f"?{query}" if query else ""), status_code=303)
        response.headers["Cache-Control"] = "no-store"
        response.set_cookie(
            _cookie_name(scope), session, max_age=SESSION_S, httponly=True, samesite="strict", secure=_is_https(scope)
        )
        await response(scope, receive, send)

    def _check_login(self, scope: Scope) -> float | None:
        """Seconds until the caller's session ends; None for callers who need none.

        Raises:
            RefusedError: not logged in.
        """
        access = self._access
        if not access.everybody_logs_in and not access.names.are_public and _is_local(scope):
            return None
        if left_s := access.login.left_s(HTTPConnection(scope).cookies.get(_cookie_name(scope))):
            return left_s
        access.login.offer()
        raise RefusedError(
            401,
            "log_in",
            "Open the link that gemslide printed on the terminal where it runs. It is good once, and lets this browser "
            "in for 12 hours. If you have logged in before and came by a link from elsewhere, go on to the worklist.",
        )

    def _check_websockets(self, scope: Scope) -> None:
        if scope["type"] == "websocket" and self._websockets >= MAX_WEBSOCKETS:
            raise RefusedError(503, "too_many", f"{MAX_WEBSOCKETS} pages are open already. Close some.")


def _take_token(scope: Scope) -> str | None:
    """The token in the link of a page. It is taken out of the scope, so that no log of the server shows it."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    tokens = [value for key, value in pairs if key == "token"]
    if not tokens:
        return None
    scope["query_string"] = urlencode([pair for pair in pairs if pair[0] != "token"]).encode("ascii")
    return tokens[0] if scope["path"] == "/" else None


def _check_names(scope: Scope, names: Names) -> None:
    hosts = Headers(scope=scope).getlist("host")
    if len(hosts) != 1 or not names.include(hosts[0], scope.get("server")):
        raise RefusedError(
            400,
            "unknown_host",
            "This app is not known by the name in your browser's address line. If it should be, start it with "
            "`gemslide app --name NAME` (with :PORT if another port stands there), or with GEMSLIDE_NAMES.",
        )


def _check_sender(scope: Scope) -> None:
    """Only pages of this app may ask, and people who follow a link to one of its pages."""
    headers = Headers(scope=scope)
    origins = headers.getlist("origin")
    own = f"{'https' if _is_https(scope) else 'http'}://{headers['host']}"
    if origins not in ([], [own]):
        raise RefusedError(403, "foreign_origin", "This app answers to its own pages only.")
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not (
        follows_link and scope["path"] in PAGES
    ):
        raise RefusedError(403, "foreign_site", "This app answers to its own pages only.")


def _check_request(scope: Scope) -> None:
    """Next to nothing is uploaded, so other requests have no body; and nothing but the app's own paths is served."""
    if scope["type"] == "websocket":
        if scope["path"] != WEBSOCKET:
            raise RefusedError(404, "not_found", "Nothing is served under this link.")
        return
    if scope["method"] == "POST" and (most_bytes := _most_bytes(scope["path"])):
        _check_post(Headers(scope=scope), most_bytes)
        return
    if scope["method"] not in _METHODS:
        raise RefusedError(405, "method", "This app only shows: GET, HEAD and OPTIONS are answered.")
    headers = Headers(scope=scope)
    if headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in headers:
        raise RefusedError(413, "body", "This app only shows: a request must not have a body.")
    if scope["path"] not in PAGES and not _SERVED.fullmatch(scope["path"]):
        raise RefusedError(404, "not_found", "Nothing is served under this link.")


def _most_bytes(path: str) -> int:
    """How many may be sent under a path; none where nothing may."""
    return next((most for pattern, most in _POSTED if pattern.fullmatch(path)), 0)


def _check_post(headers: Headers, most_bytes: int) -> None:
    """A page of this app says that it is one, and how much it sends."""
    if "origin" not in headers:
        raise RefusedError(403, "foreign_origin", "This app takes what its own pages send, and these say so.")
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not re.fullmatch(r"\d{1,12}", length, re.ASCII) or int(length) > most_bytes:
        raise RefusedError(413, "body", f"At most {most_bytes >> 10} KiB can be sent here, and how much must be said.")


def _is_local(scope: Scope) -> bool:
    """Whether caller and server are both on this computer's loopback, with no proxy between them that says so."""
    client, server = scope.get("client") or (None,), scope.get("server") or (None,)
    is_forwarded = any(name in Headers(scope=scope) for name in FORWARDED)
    return is_loopback(client[0]) and is_loopback(server[0]) and not is_forwarded


def _is_https(scope: Scope) -> bool:
    """Whether the page is one of https. A proxy that says so is believed: that can only narrow what is let in."""
    return scope.get("scheme") in ("https", "wss") or Headers(scope=scope).get("x-forwarded-proto") == "https"


def _cookie_name(scope: Scope) -> str:
    """Browsers do not tell ports apart: two apps on one computer must not share a cookie."""
    _, port = scope.get("server") or ("", None)
    return f"gemslide_session_{port or 0}"
