"""Very many sockets: one reader's pages, strangers' connections and pages, requests that pile up.

    python -m tests.attacks.web_sockets --times 400 --seed 1

Promised: while they are open another person opens a page and gets tiles within seconds, and nothing stays open after
they close.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import secrets
import socket
import tempfile
import time
from pathlib import Path

import httpx

from tests.attacks.attack import Result, main
from tests.pathology_app.signed_in import add_people, browser, cookie_of, sign_in
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app
from tests.pathology_app.streamlit_socket import tab, texts

PROMPT_S = 5.0
KINDS = ("silent", "idle after a request", "a reader's page", "a stranger's page", "a reader's tile, unread")


def attack(times: int, seed: int) -> Result:
    """Open `times` sockets of all kinds, with many addresses claimed by a proxy, and visit as another person."""
    result, rng = Result("sockets of the web app", times), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        make_project(root)
        add_people(root)
        environment = {"GEMSLIDE_PROXIES": "127.0.0.1"}
        with started_app(root, Path(folder) / "server.log", environment=environment) as app:
            with browser(app.url) as reader:
                sign_in(reader, "rita")
                cookie = cookie_of(reader)
            _look(app, result)  # the first page of a process takes long
            alone_s = _look(app, result)
            with contextlib.ExitStack() as sockets:
                for number in range(times):
                    one = socket.create_connection((app.name, app.port), timeout=10)
                    sockets.callback(one.close)
                    with contextlib.suppress(OSError):  # already closed by the app
                        one.sendall(_request(app, KINDS[number % len(KINDS)], cookie, rng))
                seconds = _look(app, result)
            result.what += f", another person got in after {seconds:.1f} s, alone after {alone_s:.1f} s"
            result.check(seconds < PROMPT_S + 2 * alone_s, f"another person waited {seconds:.1f} s")
            result.check("Traceback" not in app.log.read_text(), f"a traceback: {app.log.read_text()[-500:]}")
            left = sum("socket:" in link for link in _links(app))
            result.check(left < 80, f"{left} sockets are still open")
    return result


def _look(app: StartedApp, result: Result) -> float:
    """Seconds that another person takes to sign in, see a tile and open a page."""
    start = time.perf_counter()
    try:
        with browser(app.url) as client:
            sign_in(client, "ada")
            client.get(f"/tiles/{SLIDE_ID}/0/1_1").raise_for_status()
            with tab(app, cookie_of(client)) as page:
                result.check("Worklist" in texts(page.run("")), "another person's page shows no worklist")
    except (httpx.HTTPError, OSError, AssertionError, StopIteration) as error:
        result.check(False, f"another person does not get in: {type(error).__name__} {error!s:.200}")
    return time.perf_counter() - start


def _request(app: StartedApp, kind: str, cookie: str, rng: random.Random) -> bytes:
    """Bytes sent on a socket that is then left open."""
    address = f"X-Forwarded-For: 198.51.100.{rng.randint(1, 20)}\r\n"
    own = f"Host: {app.name}:{app.port}\r\nOrigin: {app.url}\r\n{address}"
    if kind == "silent":
        return b""
    if kind == "idle after a request":
        return f"GET /sign-in HTTP/1.1\r\n{own}\r\n".encode()
    signed_in = f"{own}Cookie: {cookie}\r\n"
    if kind == "a reader's tile, unread":
        return f"GET /tiles/{SLIDE_ID}/0/0_0 HTTP/1.1\r\n{signed_in}\r\n".encode() * 30
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    upgrade = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    headers = signed_in if kind == "a reader's page" else own
    return f"GET /_stcore/stream HTTP/1.1\r\n{headers}{upgrade}\r\n".encode()


def _links(app: StartedApp) -> list[str]:
    """Open file descriptors of the app, once it has dropped the clients that left."""
    folder, links = Path(f"/proc/{app.process.pid}/fd"), [""]
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        links = []
        for descriptor in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(descriptor))
        if sum("socket:" in link for link in links) < 40:
            break
        time.sleep(0.2)
    return links


if __name__ == "__main__":
    main(attack, times=400)
