"""The web app is told to end while requests are in progress."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import httpx

from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

ENDS_S = 30.0


def test_a_request_in_progress_is_answered_and_no_traceback_is_logged(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    make_project(tmp_path / "project")
    with started_app(tmp_path / "project", tmp_path / "log") as app:
        with socket.create_connection((app.name, app.port), timeout=ENDS_S) as waits:
            waits.sendall(half_a_request(app))
            assert httpx.get(f"{app.url}/tiles/{SLIDE_ID}/0/0_0", timeout=ENDS_S).status_code == 200
            app.process.send_signal(signal.SIGTERM)
            answer = b"".join(iter(lambda: waits.recv(65536), b""))
        app.process.wait(ENDS_S)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"shutting_down"' in answer
    said = (tmp_path / "log").read_text()
    assert "1 running task" in said, "the request was still in progress"
    assert "Traceback" not in said


def half_a_request(app: StartedApp) -> bytes:
    """A POST whose body does not arrive whole, so that the app waits for it."""
    head = f"Host: {app.name}:{app.port}\r\nOrigin: {app.url}\r\nContent-Type: application/json\r\n"
    return f"POST /annotations/{SLIDE_ID} HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n".encode() + b'{"changes": ['
