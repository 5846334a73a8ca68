"""Strangers' requests: foreign names, origins and sites, methods and paths, while a pathologist views tiles.

    python -m tests.attacks.web_strangers --times 200 --seed 1

Promised: each is refused at once, none makes the app contact anybody, none delays a tile, no response
names a folder of this computer.
"""

from __future__ import annotations

import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.attacks.attack import Result, main
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

PROMPT_S = 1.8
"""Limit for "at once" and "no delay" on a machine busy with other tests: Streamlit's look-up takes 2 s."""

ORIGINS = (
    "http://evil.example", "https://evil.example", "null", "http://localhost", "http://127.0.0.1", "file://", "",
    "http://127.0.0.1:1", "http://10.0.0.1:8501", "http://[::1]", "chrome-extension://abc", "http://0.0.0.0",
)  # fmt: skip
HOSTS = ("evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0", "127.1", "[::]", "127.0.0.1.nip.io", "")
PATHS = (
    "/_stcore/metrics", "/_stcore/script-health-check", "/_stcore/upload_file/a/b", "/_stcore/agent/interact",
    "/auth/login", "/component/a/b", "/app/static/x", "/..%2f..%2fetc/passwd", "/static/..%2f..%2f..%2fconfig.py",
    "/media/../../etc/passwd", "/tiles/../../x", "/tiles/%2e%2e/0/0_0", "//etc/passwd", "/viewer/../asgi.py",
)  # fmt: skip


class SilentProxy:
    """Proxy that accepts connections, counts them and never answers."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.taken: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that direct every HTTP client of a process here."""
        url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        names = ("http_proxy", "https_proxy", "all_proxy")
        proxies = {spelt: url for name in names for spelt in (name, name.upper())}
        return {**proxies, "no_proxy": "", "NO_PROXY": ""}

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()

    def _take(self) -> None:
        while True:
            try:
                self.taken.append(self._listening.accept()[0])
            except OSError:
                return


def ask(app: StartedApp, method: str, path: str, headers: list[tuple[str, str]], *, timeout_s: float = 30) -> bytes:
    """Send one request as is, on its own connection; return the whole answer, or its start for a WebSocket."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    with socket.create_connection((app.name, app.port), timeout=timeout_s) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        answer = b""
        while data := connection.recv(65536):
            answer += data
            if answer.startswith(b"HTTP/1.1 101"):
                break
        return answer


def handshake(app: StartedApp, origin: str, host: str | None = None) -> bytes:
    """Open Streamlit's WebSocket as a page of `origin`."""
    headers = [
        ("Host", host or f"{app.name}:{app.port}"), ("Origin", origin), ("Upgrade", "websocket"),
        ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]  # fmt: skip
    lines = ["GET /_stcore/stream HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    with socket.create_connection((app.name, app.port), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return connection.recv(65536)


def attack(times: int, seed: int) -> Result:
    """Send `times` requests as strangers."""
    result, proxy, rng = Result("requests of strangers to the web app", times), SilentProxy(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        make_project(root)
        log = Path(folder) / "server.log"
        with started_app(root, log, environment=proxy.environment) as app:
            ask(app, "GET", "/", [("Host", f"{app.name}:{app.port}")])  # from here on the server is up
            with _tiles(app) as slow_tiles:
                result.findings += [finding for _ in range(times) for finding in _one(app, rng, root)]
    proxy.close()
    result.findings += [f"a tile took {seconds:.1f} s" for seconds in slow_tiles]
    result.check(not proxy.taken, f"the app asked the internet {len(proxy.taken)} times")
    return result


def _one(app: StartedApp, rng: random.Random, root: Path) -> list[str]:
    own = f"{app.name}:{app.port}"
    tile = f"/tiles/{SLIDE_ID}/0/0_0"
    kind = rng.choice(["websocket", "websocket", "host", "origin", "site", "method", "body", "path"])
    start = time.perf_counter()
    if kind == "websocket":
        origin, host = rng.choice(ORIGINS), rng.choice([None, None, *HOSTS])
        what, answer = f"WebSocket from {origin!r} to {host!r}", handshake(app, origin, host)
    elif kind == "host":
        host = rng.choice(HOSTS) + rng.choice(["", f":{app.port}"])
        what, answer = f"host {host!r}", ask(app, "GET", rng.choice(["/", tile]), [("Host", host)])
    elif kind == "origin":
        origin = rng.choice(ORIGINS)
        what, answer = (
            f"origin {origin!r}",
            ask(app, "GET", rng.choice(["/", tile]), [("Host", own), ("Origin", origin)]),
        )
    elif kind == "site":
        site = [("Sec-Fetch-Site", rng.choice(["cross-site", "same-site"])), ("Sec-Fetch-Mode", "no-cors")]
        what, answer = f"site {site}", ask(app, "GET", tile, [("Host", own), *site])
    elif kind == "method":
        method = rng.choice(["POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"])
        what, answer = method, ask(app, method, rng.choice(["/", tile, *PATHS]), [("Host", own)])
    elif kind == "body":
        body = rng.choice([("Content-Length", "100000000000"), ("Transfer-Encoding", "chunked")])
        what, answer = f"body {body}", ask(app, "GET", tile, [("Host", own), body])
    else:
        path = rng.choice(PATHS)
        what, answer = path, ask(app, "GET", path, [("Host", own)])
    return list(_judge(what, answer, time.perf_counter() - start, root))


def _judge(what: str, answer: bytes, seconds: float, root: Path) -> Iterator[str]:
    status = answer[9:12]
    if not status.startswith(b"4"):
        yield f"{what}: answered {answer[:40]!r}"
    if seconds > PROMPT_S:
        yield f"{what}: refused after {seconds:.1f} s"
    for secret in (str(root), str(Path.home()) + "/", sys.prefix):
        if secret.encode() in answer:
            yield f"{what}: the answer names {secret}"


@contextmanager
def _tiles(app: StartedApp) -> Iterator[list[float]]:
    """Request tiles throughout, as a page does; return those that took long."""
    slow: list[float] = []
    done = threading.Event()

    def look() -> None:
        index = 0
        while not done.is_set():
            start = time.perf_counter()
            path = f"/tiles/{SLIDE_ID}/0/{index % 4}_{index % 3}"
            answer = ask(app, "GET", path, [("Host", f"{app.name}:{app.port}")])
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            if (seconds := time.perf_counter() - start) > PROMPT_S:
                slow.append(seconds)
            index += 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield slow
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    main(attack, times=200)
