"""Request bodies, no longer than their route accepts."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from pathology_app.access.error_response import RefusedError
from pathology_app.routes.paths import READING, WritableRoute


def check_body(scope: Scope, opening: WritableRoute | None) -> None:
    """Check that a request that only reads has no body, and that any other states a length within its route's limit.

    Raises:
        RefusedError: it does not.
    """
    headers = Headers(scope=scope)
    lengths = headers.getlist("content-length")
    if scope["method"] in READING or opening is None:
        if lengths not in ([], ["0"]) or "transfer-encoding" in headers:
            raise RefusedError(413, "body", "This request must not have a body.")
        return
    if "transfer-encoding" in headers or len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdecimal()):
        raise RefusedError(411, "length", "Give the length of the body in one Content-Length header.")
    if len(lengths[0]) > 12 or int(lengths[0]) > opening.takes.max_bytes:
        raise RefusedError(413, "body", f"A body of at most {opening.takes.max_bytes:,} bytes is accepted here.")


def bounded(receive: Receive, max_bytes: int) -> Receive:
    """`receive` that ends the request if more than `max_bytes` arrive."""
    taken = 0

    async def guarded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return message if taken <= max_bytes else {"type": "http.disconnect"}

    return guarded
