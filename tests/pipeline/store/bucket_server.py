"""A bucket on loopback: moto's S3, with a delay before each answer, a count of requests, and faults put in between."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest

from pipeline.places import connection

BUCKET = "scans"
_SIGNED = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"
Fault = Callable[[WSGIEnvironment], bytes | None]
"""Given a request: the bytes of a whole HTTP answer to send instead of the bucket's, or None."""


@dataclass
class BucketServer:
    """An S3 server that runs until its block ends."""

    port: int = 0
    delay_s: float = 0.0
    fault: Fault | None = None
    requests: list[str] = field(default_factory=list)
    """Method, path and range of each request."""
    _at_once: int = 0
    waves: int = 0
    """Times at which a request arrived while no other was being answered."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def environment(self) -> dict[str, str]:
        """How to reach it; the credentials are secrets that no message may repeat."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIASECRETKEYID",
            "AWS_SECRET_ACCESS_KEY": "secret-access-key",
        }

    def reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set its environment, and forget connections that were made with another one."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        connection.connect.cache_clear()

    def put(self, key: str, content: bytes) -> None:
        """Write an object, as another program does."""
        self._request("PUT", f"{BUCKET}/{key}", content)

    def delete(self, key: str) -> None:
        self._request("DELETE", f"{BUCKET}/{key}")

    def put_folder(self, folder: Path, key: str) -> None:
        """Copy a folder's files, as `aws s3 sync` does."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())

    def forget(self) -> None:
        """Begin to count."""
        self.requests.clear()
        self.waves = 0

    def _request(self, method: str, path: str, content: bytes | None = None) -> None:
        url = f"http://127.0.0.1:{self.port}/{path}"
        headers = {"Content-Type": "application/octet-stream", "Authorization": _SIGNED}
        with urlopen(Request(url, data=content, method=method, headers=headers), timeout=20):
            pass

    def _wrapped(self, app: WSGIApplication) -> WSGIApplication:
        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            asked = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {environ.get('HTTP_RANGE', '')}".strip()
            with self._lock:
                self.requests.append(asked)
                self.waves += self._at_once == 0
                self._at_once += 1
            try:
                time.sleep(self.delay_s)  # the way to a bucket and back
                instead = self.fault(environ) if self.fault else None
                if instead is not None:
                    environ["werkzeug.socket"].sendall(instead)
                    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                    raise ConnectionResetError
                return list(app(environ, start_response))
            finally:
                with self._lock:
                    self._at_once -= 1

        return answer


@contextmanager
def bucket_server() -> Iterator[BucketServer]:
    """An empty bucket named `BUCKET`."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None:
            pass

    bucket = BucketServer()
    app = bucket._wrapped(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    bucket.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        bucket._request("POST", "moto-api/reset")  # it keeps its buckets from server to server
        bucket._request("PUT", BUCKET)
        yield bucket
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
