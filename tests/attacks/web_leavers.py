"""Clients that disconnect halfway through a body, an upload, an answer, a handshake or a WebSocket's frame.

    python -m tests.attacks.web_leavers --times 300 --seed 1

Promised: none of this causes a traceback, leaves a connection open, or keeps others waiting.
"""

from __future__ import annotations

import base64
import random
import secrets
import socket
import struct
import tempfile
import time
from pathlib import Path

import httpx

from tests.attacks.attack import Result, main
from tests.pathology_app.signed_in import add_people, browser, cookie_of, sign_in
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

BODIES = (
    f"/annotations/{SLIDE_ID}", f"/annotations/{SLIDE_ID}/join", f"/annotations/{SLIDE_ID}/split",
    f"/annotations/{SLIDE_ID}/import", f"/coverage/{SLIDE_ID}.json", f"/hotspots/{SLIDE_ID}/{MODEL_ID}.json",
    f"/registrations/{SLIDE_ID}/S-002/points", "/sign-in", "/sign-out",
)  # fmt: skip
ANSWERS = (
    "/", "/worklist", f"/tiles/{SLIDE_ID}/0/0_0", f"/exports/{SLIDE_ID}/{MODEL_ID}/predictions.csv",
    f"/annotations/{SLIDE_ID}/qupath.geojson", f"/annotations/{SLIDE_ID}/tiles/0/0_0", "/log.csv",
    f"/thumbnails/{SLIDE_ID}.jpg", f"/layers/{SLIDE_ID}/tissue.png", "/static/index.html",
)  # fmt: skip
LEAVE_S = (0.0, 0.0, 0.005, 0.05)
PATIENCE_S = 10.0


def attack(times: int, seed: int) -> Result:
    """Disconnect `times` times, in every way at least once if there are enough."""
    result, rng = Result("callers of the web app that leave"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        make_project(root)
        add_people(root)
        with started_app(root, Path(folder) / "server.log") as app:
            with browser(app.url) as client:
                sign_in(client, "ada")
                cookie = cookie_of(client)
                ways = [(kind, path) for kind, paths in _WAYS.items() for path in paths]
                for number in range(times):
                    kind, path = ways[number % len(ways)]
                    result.attempts += 1
                    _leave(app, _request(app, kind, path, cookie, rng), rng)
                start = time.perf_counter()
                answered = client.get(f"/tiles/{SLIDE_ID}/0/1_1").status_code
                result.check(answered == 200, f"a tile afterwards: {answered}")
                result.check(time.perf_counter() - start < PATIENCE_S, "a tile afterwards took too long")
            httpx.get(f"{app.url}/_stcore/health", timeout=30)
        log_text = app.log.read_text()
        for word in ("Traceback", "Exception in", "Task exception", "RuntimeError"):
            result.check(
                word not in log_text, f"{word} in the log: {log_text[max(0, log_text.find(word) - 300) :][:2500]}"
            )
    return result


_WAYS = {"body": BODIES, "answer": ANSWERS, "websocket": ("whole", "half a handshake", "half a frame", "a long frame")}


def _request(app: StartedApp, kind: str, path: str, cookie: str, rng: random.Random) -> bytes:
    """Bytes sent before the client disconnects."""
    own = f"Host: {app.name}:{app.port}\r\nOrigin: {app.url}\r\nCookie: {cookie}\r\n"
    if kind == "answer":
        return f"GET {path} HTTP/1.1\r\n{own}\r\n".encode() * rng.choice([1, 5])
    if kind == "body":
        whole = 16_000
        sent = rng.choice([0, 1, whole // 2, whole - 1])
        media = "application/x-www-form-urlencoded" if path.startswith("/sign") else "application/json"
        head = f"POST {path} HTTP/1.1\r\n{own}Content-Type: {media}\r\nContent-Length: {whole}\r\n\r\n"
        return head.encode() + b'{"areas": [' + b" " * sent if sent else head.encode()
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    upgrade = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    handshake = f"GET /_stcore/stream HTTP/1.1\r\n{own}{upgrade}\r\n".encode()
    more = {"half a frame": b"\x82\xff\x00\x00", "a long frame": b"\x82\xfe\xff\xff" + bytes(4) + b"x" * 30_000}
    return handshake[: len(handshake) // 2] if path == "half a handshake" else handshake + more.get(path, b"")


def _leave(app: StartedApp, request: bytes, rng: random.Random) -> None:
    """Send the request and disconnect, with a reset or in good order."""
    with socket.create_connection((app.name, app.port), timeout=30) as connection:
        if rng.random() < 0.7:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            connection.sendall(request)
            if wait_s := rng.choice(LEAVE_S):
                connection.settimeout(wait_s)
                connection.recv(rng.choice([1, 200, 5000]))
        except OSError:
            return  # the app has refused it


if __name__ == "__main__":
    main(attack, times=300)
