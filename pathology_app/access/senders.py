"""Checks that a request comes from a page of this app, by the headers that the browser sends."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from pathology_app.access.error_response import RefusedError
from pathology_app.callers.cookies import is_https
from pathology_app.callers.host_names import Names, is_loopback
from pathology_app.people.provider import CALLBACK
from pathology_app.routes.paths import PAGES, READING

FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")


def check_names(scope: Scope, names: Names) -> None:
    """Raises RefusedError if the app is not called by one of its own names."""
    hosts = Headers(scope=scope).getlist("host")
    if len(hosts) != 1 or not names.include(hosts[0], scope.get("server")):
        raise RefusedError(
            400,
            "unknown_host",
            "This app does not answer to the name in your browser's address bar. If it should, start it with "
            "`gemslide app --name NAME` (with :PORT if the address has another port), or with GEMSLIDE_NAMES.",
        )


def check_sender(scope: Scope, *, with_provider: bool) -> None:
    """Admit only this app's own pages, people who follow a link to one of them, and those who come from the provider.

    Raises:
        RefusedError: any other sender.
    """
    headers = Headers(scope=scope)
    origins = headers.getlist("origin")
    own = f"{'https' if is_https(scope) else 'http'}://{headers['host']}"
    if origins not in ([], [own]):
        raise RefusedError(403, "foreign_origin", "This app answers only its own pages.")
    if scope["type"] == "http" and scope["method"] not in READING and origins != [own]:
        raise RefusedError(403, "no_origin", f"The Origin header is missing. Send Origin: {own}")
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    is_link = follows_link and scope.get("method", "GET") in READING
    may_be_linked = scope["path"] in PAGES or (with_provider and scope["path"] == CALLBACK)
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not (is_link and may_be_linked):
        raise RefusedError(403, "foreign_site", "This app answers only its own pages.")


def comes_by_link(scope: Scope) -> bool:
    """Whether somebody follows a link on a page of another site: the browser then withholds its cookies."""
    return Headers(scope=scope).get("sec-fetch-site", "none") in ("cross-site", "same-site")


def is_local(scope: Scope) -> bool:
    """Whether caller and server are both on this computer's loopback, with no declared proxy between them."""
    client, server = scope.get("client") or (None,), scope.get("server") or (None,)
    is_forwarded = any(name in Headers(scope=scope) for name in FORWARDED)
    return is_loopback(client[0]) and is_loopback(server[0]) and not is_forwarded
