"""Callers that disconnect before they are answered: nothing went wrong, and nobody is left to tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

_LEFT = (ClientDisconnect, ClientDisconnected, WebSocketDisconnect, ConnectionError)


@asynccontextmanager
async def callers_may_leave() -> AsyncIterator[None]:
    """End quietly if the caller has disconnected."""
    try:
        yield
    except Exception as error:
        if not _only_left(error):
            raise


def _only_left(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only_left(part) for part in error.exceptions)
    return isinstance(error, _LEFT)
