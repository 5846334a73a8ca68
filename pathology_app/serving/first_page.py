"""Streamlit's index.html with our viewer in its head, which shows the slide that the link names while Streamlit starts
(frontend/src/early.ts)."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pathology_app.routes.paths import PAGES
from pathology_app.viewer.bundle import bundle_path
from training.foundation.words.names import is_name

_HEAD = b"<head>"
_OF_UNCHANGED = (b"if-none-match", b"if-modified-since", b"if-range", b"range", b"accept-encoding")
"""Headers by which a browser would get less than the page, or a page that nothing can be put into."""


def with_viewer(pages: ASGIApp) -> ASGIApp:
    """The app of the pages, whose HTML loads the viewer. Requests for anything else pass through."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PAGES:
            await pages(scope, receive, send)
            return
        kept = [(name, value) for name, value in scope["headers"] if name not in _OF_UNCHANGED]
        page = _Page(send, _head_of(scope["query_string"]), has_body=scope["method"] != "HEAD")
        await pages({**scope, "headers": kept}, receive, page.send)

    return app


class _Page:
    """Holds an HTML page back until it is complete, and sends it with our part in its head."""

    def __init__(self, send: Send, head: bytes, *, has_body: bool) -> None:
        self._send = send
        self._head = head
        self._has_body = has_body
        self._start: Message | None = None
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        is_start = message["type"] == "http.response.start"
        if is_start and Headers(raw=message["headers"]).get("content-type", "").startswith("text/html"):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_page(self._start)

    async def _send_page(self, start: Message) -> None:
        page = bytes(self._body).replace(_HEAD, _HEAD + self._head, 1)
        headers = MutableHeaders(scope=start)
        for name in ("etag", "last-modified", "accept-ranges", "content-length"):
            del headers[name]
        if self._has_body:
            headers["content-length"] = str(len(page))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": page if self._has_body else b""})


def _head_of(query: bytes) -> bytes:
    """Our part of a page's head: the viewer runs as soon as it is there, and its slide is requested at once."""
    tags = [f'<script type="module" async data-gemslide-page src="/viewer/{bundle_path().name}"></script>']
    named = {name: values[0] for name, values in parse_qs(query.decode("latin-1")).items()}
    slide_id, model_id = named.get("slide", ""), named.get("model", "")
    if is_name(slide_id):
        of_model = f"?model={model_id}" if is_name(model_id) else ""
        tags.append(f'<link rel="preload" as="fetch" crossorigin href="/opened/{slide_id}.json{of_model}">')
    return "".join(f"\n{tag}" for tag in tags).encode()
