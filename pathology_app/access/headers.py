"""Security headers of every response: which servers a page may talk to, and who may embed it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

_INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def content_security_policy(page: str) -> str:
    """The policy of a page that loads everything from its own server.

    Args:
        page: Streamlit's index.html, whose own inline scripts are allowed by their hashes.
    """
    digests = (hashlib.sha256(script.encode()).digest() for script in _INLINE_SCRIPT.findall(page))
    hashes = (f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests)
    return "; ".join(
        (
            "default-src 'self'",
            # Streamlit loads a component's module from a blob that it makes from the server's message.
            " ".join(("script-src 'self' blob:", *hashes)),
            # Streamlit, its table and OpenSeadragon write styles into the page.
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


@cache
def security_headers() -> dict[str, str]:
    """Headers of every response."""
    # Located without importing it: a process that serves only tiles has no other use for it.
    streamlit = find_spec("streamlit")
    assert streamlit is not None
    assert streamlit.origin is not None
    index = Path(streamlit.origin).parent / "static" / "index.html"
    return {
        "Content-Security-Policy": content_security_policy(index.read_text(encoding="utf-8")),
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        # With no-referrer, browsers would send no Origin when a form is submitted.
        "Referrer-Policy": "same-origin",
    }


def with_security_headers(send: Send, *, by_session: Callable[[], bool] = lambda: False) -> Send:
    """`send`, with the headers set on its first message.

    Args:
        by_session: whether the response is for one session only: a browser must not keep it for the next person.
    """

    async def guarded(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            headers.update(security_headers())
            if by_session():
                headers.add_vary_header("Cookie")
        await send(message)

    return guarded
