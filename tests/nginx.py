"""Debian's nginx with the documented example, for tests: on a free port, with its files in a given folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "nginx.conf"
NAME = "127.0.0.1"
_MAIN = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{example}
}}
"""


@dataclass(frozen=True)
class Nginx:
    """A running nginx."""

    url: str
    log: Path

    def answered_by(self) -> Counter[int]:
        """Number of requests answered by each upstream port, from the log."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []  # no requests yet
        upstreams = [line.split()[-1].split(",")[-1] for line in lines]
        return Counter(int(upstream.rpartition(":")[2]) for upstream in upstreams if ":" in upstream)


def find_nginx() -> str | None:
    """Path of the program, which Debian does not put on every user's PATH."""
    return shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


def nginx_program() -> str:
    """Path of nginx; skip the test if it is not installed."""
    program = find_nginx()
    if program is None:
        pytest.skip("nginx is not installed (Debian's package nginx-light)")
    return program


def listening_socket() -> socket.socket:
    """Socket on a free port. nginx inherits it, so nobody can take the port in between, and clients wait for nginx."""
    listening = socket.create_server((NAME, 0))
    listening.set_inheritable(True)
    return listening


@contextmanager
def started_nginx(
    folder: Path, listening: socket.socket, pages: int, tiles: Sequence[int], *, says_who_asks: bool = True
) -> Iterator[Nginx]:
    """Run the example with our ports, and http in place of https.

    Args:
        listening: as from `listening_socket`.
        pages, tiles: ports of the upstream processes.
        says_who_asks: whether to pass client addresses, as the example does; then everybody has to sign in. False: as
            for local users of one computer.
    """
    program, log = nginx_program(), folder / "access.log"
    folder.mkdir(parents=True, exist_ok=True)
    port = listening.getsockname()[1]
    example = _with_ports(port, pages, tiles, log)
    if not says_who_asks:
        example = _replaced(r" *proxy_set_header X-Forwarded-\S+ \S+;\n", "", example)
    config, descriptor = folder / "nginx.conf", listening.fileno()
    config.write_text(_MAIN.format(folder=folder, example=example))
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(
            [program, "-p", str(folder), "-c", str(config), "-e", "stderr"],
            stdout=stderr,
            stderr=stderr,
            pass_fds=[descriptor],
            env={**os.environ, "NGINX": f"{descriptor};"},  # as nginx hands its sockets to a new version of itself
        ) as process,
    ):
        listening.close()  # otherwise clients would wait forever after nginx has ended
        try:
            yield Nginx(f"http://{NAME}:{port}", log)
        finally:
            process.terminate()
            process.wait(timeout=20)
            assert "[emerg]" not in (folder / "stderr").read_text(), (folder / "stderr").read_text()


def _with_ports(port: int, pages: int, tiles: Sequence[int], log: Path) -> str:
    text = EXAMPLE.read_text()
    text = _replaced(r"listen 443 ssl;", f"listen {NAME}:{port};", text)
    text = _replaced(r"server_name \S+;", f"server_name {NAME};", text)
    text = _replaced(r" *ssl_certificate(_key)? \S+;\n", "", text)
    text = _replaced(r"access_log \S+ gemslide;", f"access_log {log} gemslide;", text)
    text = _replaced(r"server 127\.0\.0\.1:8501;", f"server {NAME}:{pages};", text)
    first, *others = (f"    server {NAME}:{tile_port} max_fails=1 fail_timeout=5s;\n" for tile_port in tiles)
    text = _replaced(r"    server 127\.0\.0\.1:8511 [^\n]*\n", first, text)
    return _replaced(r"    server 127\.0\.0\.1:8512 [^\n]*\n", "".join(others), text)


def _replaced(pattern: str, by: str, text: str) -> str:
    changed, count = re.subn(pattern, lambda _: by, text)
    assert count, f"{EXAMPLE}: no {pattern}"
    return changed
