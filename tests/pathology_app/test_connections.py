"""Which connections the app ends when there are too many."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pathology_app.serving.timeouts import MAX_OPEN, Timeouts, protocol_with


@dataclass(frozen=True)
class Served:
    """A server in a thread, whose event loop can be held up."""

    address: tuple[str, int]
    loop: asyncio.AbstractEventLoop

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Meanwhile, connections are made but neither accepted nor read."""
        is_held, goes_on = threading.Event(), threading.Event()

        def hold() -> None:
            is_held.set()
            goes_on.wait()

        self.loop.call_soon_threadsafe(hold)
        assert is_held.wait(30)
        try:
            yield
        finally:
            goes_on.set()


@pytest.fixture(params=["asyncio", "auto"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    loops: list[asyncio.AbstractEventLoop] = []
    begun = threading.Event()

    class Started(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            loops.append(asyncio.get_running_loop())
            begun.set()

    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    # Long limits, so that nothing but the number of connections ends one.
    config = uvicorn.Config(
        app, http=protocol_with(Timeouts(60, 60, 60)), log_level="error", ws="none", loop=request.param
    )
    server = Started(config)
    with socket.create_server(("127.0.0.1", 0), backlog=2 * MAX_OPEN) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert begun.wait(30)
        try:
            yield Served(listening.getsockname(), loops[0])
        finally:
            server.should_exit = server.force_exit = True
            thread.join(30)


def test_a_request_that_arrived_before_a_burst_of_connections_is_answered(served: Served) -> None:
    with ExitStack() as connections:

        def connect() -> socket.socket:
            return connections.enter_context(socket.create_connection(served.address, timeout=30))

        with served.held_up():
            asking = connect()
            asking.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            silent = [connect() for _ in range(MAX_OPEN + 10)]

        answer = asking.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"hello")
        for oldest in silent[:9]:
            assert was_ended(oldest)


def was_ended(connection: socket.socket) -> bool:
    """Wait until the server ends the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
