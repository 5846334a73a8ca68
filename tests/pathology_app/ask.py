"""Requests to an ASGI app without a server, with every part of the request under the test's control."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", 8501)


@dataclass
class Answer:
    """Response to a request; status 101 is an accepted WebSocket."""

    status: int = 0
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    closed_with: int | None = None
    """Close code of the WebSocket."""


async def served(scope: Scope, receive: Receive, send: Send) -> None:
    """App behind the guard that accepts everything."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["query_string"]})


def ask(
    app: ASGIApp,
    path: str = "/",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    *,
    method: str = "GET",
    kind: str = "http",
    client: tuple[str, int] | None = ("127.0.0.1", 5000),
    server: tuple[str, int | None] | None = LOOPBACK,
    scheme: str | None = None,
) -> Answer:
    """Send one request. The default Host is the loopback address."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
    if not any(name.lower() == "host" for name, _ in pairs):
        pairs.append(("host", "127.0.0.1:8501"))
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": kind,
        "scheme": scheme or ("http" if kind == "http" else "ws"),
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in pairs],
        "client": client,
        "server": server,
        "extensions": {"websocket.http.response": {}},
    }
    if kind == "http":
        scope["method"] = method
    answer = Answer()

    async def send(message: Message) -> None:
        if message["type"] == "websocket.accept":
            answer.status = 101
        elif message["type"] == "websocket.close":
            answer.closed_with = message["code"]
        elif message["type"].endswith("http.response.start"):
            answer.status, answer.headers = message["status"], Headers(raw=message["headers"])
        elif message["type"].endswith("http.response.body"):
            answer.body += message.get("body", b"")
        else:
            raise AssertionError(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(app(scope, receive, send))
    return answer
