"""Start the web app and say where it is."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path

import typer
import uvicorn

from pathology_app.asgi import create_app
from pathology_app.tiles.cache import PROJECT_VARIABLE
from pipeline.config import load_settings
from pipeline.errors import GemslideError
from pipeline.project import Project


class CannotListenError(GemslideError):
    """The web app cannot listen where it should."""

    code = "cannot_listen"


def serve(project: Path, *, host: str | None, port: int | None) -> None:
    """Serve one project until interrupted.

    Args:
        host, port: None takes what `gemslide.toml` says (127.0.0.1, 8501), and another port when that one is
            taken; port 0 takes any free one.
    """
    settings = load_settings(Project(project).settings_path).app
    os.environ[PROJECT_VARIABLE] = str(project.resolve())
    ports = [settings.port, 0] if port is None else [port]
    listening = listen(host or settings.host, ports)
    address, number = listening.getsockname()[:2]
    name = server_name(address)
    shown = f"[{address}]" if listening.family == socket.AF_INET6 else name or address
    typer.echo(f"gemslide shows {project.resolve()} at http://{shown}:{number} (Ctrl+C ends it)")
    config = uvicorn.Config(create_app(name), log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listening])


def server_name(listening_on: str) -> str | None:
    """The name under which other computers may call this one; None when none can.

    Streamlit takes sessions from the names it knows only, and would ask a host on the internet for others.
    """
    address = ipaddress.ip_address(listening_on)
    if address.is_loopback:
        return None
    return socket.gethostname() if address.is_unspecified else listening_on


def listen(host: str, ports: list[int]) -> socket.socket:
    """A socket listening on the first of `ports` that is free.

    Raises:
        CannotListenError: none is, or the host is not this computer's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise CannotListenError(f"host {host!r}: {error}. Use 127.0.0.1 or an address of this computer.") from error
    refusals = []
    for port in ports:
        # With the protocol named, asyncio sets TCP_NODELAY; else every tile on a kept connection waits 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address[0], port))
            # From here on callers wait in the queue until the app is up.
            listening.listen()
        except OSError as error:
            listening.close()
            refusals.append(f"port {port}: {error.strerror}")
        else:
            return listening
    raise CannotListenError(
        f"cannot listen on {host}, {'; '.join(refusals)}. Choose another port with --port; 0 takes any free one."
    )
