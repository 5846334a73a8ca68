"""Clients that never finish: headers a byte at a time, endless headers, unread answers.

    python -m tests.attacks.web_slow --times 200 --seed 1

Promised: each is disconnected in time, no connection stays open, and no tile waits for them. Timeouts are short here to
keep the attack short; the app's own are in `pathology_app/serving/timeouts.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from pathology_app.viewer.bundle import bundle_path
from tests.attacks.attack import Result, main
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import WITH_TIMEOUTS, StartedApp, started_app

HEADERS_S, ANSWER_S, IDLE_S = 1.0, 2.0, 1.0
PATIENCE_S = 4.0
"""Tolerance beyond the timeouts, on a busy machine."""
PROMPT_S = 1.8
"""Time limit for a tile meanwhile, on a machine that is busy with other tests."""
TILE_TIMEOUT_S = 30.0
BYTE_S = 0.05
"""Pause between two bytes of a slow client."""

Slow = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Connect and send nothing."""


async def byte_by_byte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send headers a byte at a time."""
    for byte in request[:-4] + b"\r\nX: " + b"x" * 10_000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(BYTE_S)


async def after_a_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Do the same on a connection that has had its first answer."""
    writer.write(request)
    await reader.readuntil(b"\r\n\r\n")
    await byte_by_byte(reader, writer, request)


async def only_line_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send blank lines between two requests, which servers ignore."""
    writer.write(request)
    await reader.readuntil(b"\r\n\r\n")
    await byte_by_byte(reader, writer, b"\r\n" * 5000)


async def half_a_websocket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send an incomplete handshake."""
    writer.write(
        request[:-2].replace(b" /", b" /_stcore/stream?", 1) + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    )


async def endless_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send headers as fast as they are accepted."""
    while True:
        writer.write(request[:-2] + b"X: " + b"x" * 65_000)
        await writer.drain()


async def endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send a body as fast as it is accepted."""
    writer.write(request[:-2] + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        await writer.drain()


async def unread_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Request megabytes and read none of them."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(request * 40)
    await asyncio.sleep(ANSWER_S + IDLE_S)
    writer.transport.resume_reading()  # type: ignore[attr-defined]


CLIENTS: tuple[Slow, ...] = (
    silent, byte_by_byte, after_a_request, only_line_ends, half_a_websocket, endless_headers, endless_body,
    unread_answers,
)  # fmt: skip


def attack(times: int, seed: int) -> Result:
    """Connect `times` slow clients at once."""
    result, rng = Result("slow clients of the web app", times), random.Random(seed)
    clients = [*CLIENTS, *rng.choices(CLIENTS, k=max(0, times - len(CLIENTS)))][:times]
    limits = [str(limit) for limit in (HEADERS_S, ANSWER_S, IDLE_S)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        make_project(root)
        command = [sys.executable, "-c", WITH_TIMEOUTS, root, *limits]
        with started_app(root, Path(folder) / "server.log", command=command) as app:
            asyncio.run(_attack(app, clients, result))
    return result


async def _attack(app: StartedApp, clients: list[Slow], result: Result) -> None:
    _tile(app)  # from here on the server is up, with its own sockets
    await asyncio.sleep(BYTE_S)
    before = _sockets(app)
    is_over = threading.Event()
    watching = asyncio.create_task(asyncio.to_thread(_watch_tiles, app, is_over))
    ended = await asyncio.gather(*(_one(app, client) for client in clients))
    is_over.set()
    tile_seconds = await watching
    result.findings += [finding for finding in ended if finding]
    result.check(max(tile_seconds) < PROMPT_S, f"a tile took {max(tile_seconds):.1f} s")
    stayed = await _until_closed(app, before)
    result.check(not stayed, f"{_sockets(app) - before} connections stayed open")


async def _one(app: StartedApp, client: Slow) -> str | None:
    """Describe how a client outlived its time limit; None if it was disconnected in time."""
    limit_s = HEADERS_S + ANSWER_S + IDLE_S + PATIENCE_S
    start = time.perf_counter()
    reader, writer = await _connect(app)
    path = f"/viewer/{bundle_path().name}" if client is unread_answers else f"/tiles/{SLIDE_ID}/0/0_0"
    request = f"GET {path} HTTP/1.1\r\nHost: {app.name}:{app.port}\r\n\r\n".encode()
    try:
        async with asyncio.timeout(limit_s):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await client(reader, writer, request)
            with contextlib.suppress(OSError):
                while await reader.read(1 << 20):
                    pass
    except TimeoutError:
        return f"{client.__name__}: still there after {time.perf_counter() - start:.1f} s"
    finally:
        writer.transport.abort()
    return None


async def _connect(app: StartedApp) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (app.name, app.port))
    return await asyncio.open_connection(sock=connection)


def _tile(app: StartedApp) -> float:
    """Seconds that a tile took on its own connection; infinite if none came."""
    start = time.perf_counter()
    request = f"GET /tiles/{SLIDE_ID}/0/1_1 HTTP/1.1\r\nHost: {app.name}:{app.port}\r\nConnection: close\r\n\r\n"
    with socket.create_connection((app.name, app.port), timeout=TILE_TIMEOUT_S) as connection:
        connection.sendall(request.encode())
        try:
            answer = connection.makefile("rb").read()
        except OSError:
            return math.inf
    return time.perf_counter() - start if answer.startswith(b"HTTP/1.1 200") else math.inf


def _watch_tiles(app: StartedApp, is_over: threading.Event) -> list[float]:
    """Request tiles until the attack is over, and return the seconds each took.

    In a thread: the attack's event loop is busy with its clients, and would leave a connection without its request
    so long that the app rightly takes it for one of theirs.
    """
    seconds = [_tile(app)]
    while not is_over.wait(BYTE_S):
        seconds.append(_tile(app))
    return seconds


def _sockets(app: StartedApp) -> int:
    """Sockets that the app has open."""
    folder = Path(f"/proc/{app.process.pid}/fd")
    links = []
    for descriptor in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(descriptor))
    return sum(link.startswith("socket:") for link in links)


async def _until_closed(app: StartedApp, wanted: int) -> bool:
    """Wait until at most `wanted` sockets are open; return whether more are still open when patience ends."""
    ends = time.perf_counter() + PATIENCE_S + ANSWER_S
    while _sockets(app) > wanted and time.perf_counter() < ends:
        await asyncio.sleep(0.05)
    return _sockets(app) > wanted


if __name__ == "__main__":
    main(attack, times=200)
