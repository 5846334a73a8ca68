"""Start the web app and print its address."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
import uvicorn
from starlette.types import ASGIApp

from pathology_app.access.guard import Access
from pathology_app.callers.host_names import Names, bracketed, is_loopback, parse_names
from pathology_app.people.sign_in import SignIn
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.serving.environment import sign_in_here
from pathology_app.serving.installation import confine
from pathology_app.serving.shutdown import answers_at_shutdown
from pathology_app.serving.timeouts import Timeouts, protocol_with
from pipeline.project import open_project
from pipeline.settings.config import load_settings
from pipeline.settings.site import trusted_proxies
from training.foundation.errors import GemslideError


class NobodySignsInError(GemslideError):
    """The app would be open to other computers, and nobody has set how people sign in there."""

    code = "nobody_signs_in"


class CannotListenError(GemslideError):
    """The web app cannot listen on its address or port."""

    code = "cannot_listen"


MAX_CONNECTIONS = 400
"""More get 503: many systems allow 1024 open files, and the open slides need some of them."""
MAX_MESSAGE_BYTES = 2**20
"""Of a browser's message to Streamlit about the state of its widgets."""


def serve(
    project: Path,
    *,
    host: str | None,
    port: int | None,
    names: Sequence[str] = (),
    login: bool = False,
    tiles_only: bool = False,
    timeouts: Timeouts | None = None,
) -> None:
    """Serve one project until interrupted.

    Args:
        host: None: as in `gemslide.toml` (a loopback address; 127.0.0.1). Any other address needs accounts, a
            provider, or `login`.
        port: None: as in `gemslide.toml` (8501), and another port if that one is taken; 0 takes any free one.
        names: under which the app may be called, besides the address it listens on.
        login: whether everybody logs in with links printed on the terminal, callers from this computer, too. With
            accounts or a provider everybody signs in anyway, and there are no links.
        tiles_only: the tile routes without the pages. People log in at the app with the pages.

    Raises:
        NobodySignsInError: an address that other computers reach, and neither accounts nor a provider nor `login`.
        BadRecipeError: `gemslide.toml`, a name or `GEMSLIDE_SLIDES` is invalid.
        CannotListenError: the address is not this computer's, or the port is taken.
    """
    create = _factory(tiles_only)
    settings = load_settings(open_project(project).settings_path).app
    given = Names(parse_names(names))
    os.environ[PROJECT_VARIABLE] = str(project.resolve())
    confine(open_project(project))
    ports = [settings.port, 0] if port is None else [port]
    listening = listen(host or settings.host, ports)
    app = create(_access(project, listening, given, login=login, tiles_only=tiles_only))
    timeouts = timeouts or Timeouts()
    config = uvicorn.Config(
        answers_at_shutdown(app),
        http=protocol_with(timeouts),
        ws_max_size=MAX_MESSAGE_BYTES,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=timeouts.idle_s,
        timeout_graceful_shutdown=2,
        server_header=False,
        proxy_headers=False,  # otherwise uvicorn trusts any process on this computer
        log_level="warning",
        access_log=False,
    )
    uvicorn.Server(config).run(sockets=[listening])


def _factory(tiles_only: bool) -> Callable[[Access], ASGIApp]:
    """Factory of the app; Streamlit is loaded for the pages only."""
    if tiles_only:
        from pathology_app.tile_asgi import create_tile_app

        return create_tile_app
    from pathology_app.asgi import create_app

    return create_app


def _access(project: Path, listening: socket.socket, given: Names, *, login: bool, tiles_only: bool) -> Access:
    """Set who is let in through a socket, and print the app's address on the terminal."""
    address, number = listening.getsockname()[:2]
    everybody_logs_in = login or given.are_public or not is_loopback(address)
    sign_in = sign_in_here(None if tiles_only else lambda token: announce(token))
    if not (sign_in.is_by_account or login or is_loopback(address)):
        listening.close()
        raise NobodySignsInError(
            f"host {address}: other computers can reach it, and nobody has to sign in. Set who may (`gemslide account "
            "add NAME --role reader`, or a provider in GEMSLIDE_OIDC; docs/reference/web_app.md), or add --login: then "
            "everybody who is given a link from this terminal is let in and may do everything."
        )
    names = given
    if ipaddress.ip_address(address).is_unspecified and not given.given:
        names = Names(parse_names([socket.gethostname()]))
    link = f"http://{shown_name(address, number, names)}"

    def announce(token: str) -> None:
        typer.echo(f"To let one more browser in, open this link once: {link}/?token={token}")

    what = "serves the tiles of" if tiles_only else "shows"
    typer.echo(f"gemslide {what} {project.resolve()} at {link} (Ctrl+C ends it)")
    if sign_in.is_by_account:
        typer.echo(_who_may_sign_in(sign_in))
    elif everybody_logs_in:
        sign_in.revoke_links()
        sign_in.links.offer()
    if not is_loopback(address):
        typer.echo("Network traffic is not encrypted; docs/reference/web_app.md shows how a proxy can do that.")
    return Access(sign_in, names, everybody_logs_in, trusted_proxies())


def _who_may_sign_in(sign_in: SignIn) -> str:
    """Line for the operator about the people who may sign in. Raises: as `read_accounts`."""
    accounts = sign_in.accounts.all()
    shown = ", ".join(sorted(accounts)[:10]) + (" …" if len(accounts) > 10 else "")
    way = f", by {sign_in.provider.server_metadata_url.split('/')[2]}" if sign_in.provider else ""
    return f"May sign in{way}: {shown or 'nobody yet (`gemslide account add`)'} ({sign_in.accounts.path})"


def shown_name(address: str, port: int, names: Names) -> str:
    """Host and port to type into a browser; a name rather than an address that stands for all interfaces."""
    is_unspecified = ipaddress.ip_address(address).is_unspecified
    name = names.given[0] if names.given and (is_unspecified or names.are_public) else bracketed(address)
    has_port = ":" in name.rpartition("]")[2]
    return name if has_port else f"{name}:{port}"


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
        # With the protocol named, asyncio sets TCP_NODELAY; otherwise every tile on a kept connection waits 40 ms.
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
