"""Bodies of requests, no longer than what is sent there may be."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from pathology_app.access.error_response import RefusedError
from pathology_app.routes.paths import READING, WritableRoute


def check_body(scope: Scope, opening: WritableRoute | None) -> None:
    """Questions have no body; what is sent says how long it is, and is not too long.

    Raises:
        RefusedError: anything else.
    """
    headers = Headers(scope=scope)
    lengths = headers.getlist("content-length")
    if scope["method"] in READING or opening is None:
        if lengths not in ([], ["0"]) or "transfer-encoding" in headers:
            raise RefusedError(413, "body", "A question to this app has no body.")
        return
    if "transfer-encoding" in headers or len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdecimal()):
        raise RefusedError(411, "length", "Say once, by Content-Length, how long the body is.")
    if len(lengths[0]) > 12 or int(lengths[0]) > opening.takes.max_bytes:
        raise RefusedError(413, "body", f"A body of at most {opening.takes.max_bytes:,} bytes is taken here.")


def bounded(receive: Receive, max_bytes: int) -> Receive:
    """`receive`, which ends the request where more comes than was said."""
    taken = 0

    async def guarded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return message if taken <= max_bytes else {"type": "http.disconnect"}

    return guarded
