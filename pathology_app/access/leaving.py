"""Callers that leave before they are answered: nothing went wrong, and nobody is there to hear of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

_LEFT = (ClientDisconnect, ClientDisconnected, WebSocketDisconnect, ConnectionError)


@asynccontextmanager
async def callers_may_leave() -> AsyncIterator[None]:
    """End quietly where the caller has left."""
    try:
        yield
    except Exception as error:
        if not _only_left(error):
            raise


def _only_left(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only_left(each) for each in error.exceptions)
    return isinstance(error, _LEFT)
