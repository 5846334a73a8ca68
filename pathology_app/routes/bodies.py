"""Bodies of requests, bounded in size and in time: somebody who sends one slowly does not keep others out."""

from __future__ import annotations

import anyio
from starlette.requests import Request

from training.foundation.errors import GemslideError

BODY_S = 10.0
"""Time limit for a short body to arrive."""
SLOWEST_BYTES_PER_S = 2**18
"""A long body gets more time, at this rate."""


class TooLargeError(GemslideError):
    """A request's body is over the limit."""

    code = "too_large"


class LateBodyError(GemslideError):
    """A request's body did not arrive in time."""

    code = "late_body"


async def body_of(request: Request, most_bytes: int) -> bytes:
    """The body of a request.

    Raises:
        TooLargeError: more than `most_bytes`. LateBodyError: it did not arrive in time.
        ClientDisconnect: the caller has left.
    """
    limit_s, body = BODY_S + most_bytes / SLOWEST_BYTES_PER_S, bytearray()
    try:
        with anyio.fail_after(limit_s):
            async for part in request.stream():
                body += part
                if len(body) > most_bytes:
                    raise TooLargeError(
                        f"More than {most_bytes >> 20} MiB. Import large files with `gemslide annotations import`."
                    )
    except TimeoutError as error:
        raise LateBodyError(
            f"{request.url.path!r}: the request body did not arrive in {limit_s:.0f} s. Try again, on a faster "
            "connection if you can."
        ) from error
    return bytes(body)
