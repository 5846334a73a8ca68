"""End of the server while requests are in progress."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pathology_app.access.error_response import RefusedError, send_error


def answers_at_shutdown(app: ASGIApp) -> ASGIApp:
    """The app for uvicorn, which cancels requests that are still in progress some seconds after it was told to end.

    They are answered with 503 where no answer has begun. uvicorn would log a traceback for each.
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await app(scope, receive, noted)
        except asyncio.CancelledError:
            if scope["type"] == "lifespan":
                raise
            if not has_begun:
                await send_error(_ENDING, scope, receive, send)

    return answered


_ENDING = RefusedError(
    503,
    "shutting_down",
    "gemslide is shutting down. It may or may not have carried out this request: look again once it is running.",
)
