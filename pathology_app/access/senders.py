"""Whether a request comes from a page of this app, by what the browser says of it."""

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
    """Raises RefusedError where the app is not called by one of its own names."""
    hosts = Headers(scope=scope).getlist("host")
    if len(hosts) != 1 or not names.include(hosts[0], scope.get("server")):
        raise RefusedError(
            400,
            "unknown_host",
            "This app is not known by the name in your browser's address line. If it should be, start it with "
            "`gemslide app --name NAME` (with :PORT if another port stands there), or with GEMSLIDE_NAMES.",
        )


def check_sender(scope: Scope, *, with_provider: bool) -> None:
    """Only pages of this app may ask, and people who follow a link to one of its pages, or come from the provider.

    Raises:
        RefusedError: anybody else.
    """
    headers = Headers(scope=scope)
    origins = headers.getlist("origin")
    own = f"{'https' if is_https(scope) else 'http'}://{headers['host']}"
    if origins not in ([], [own]):
        raise RefusedError(403, "foreign_origin", "This app answers to its own pages only.")
    if scope["type"] == "http" and scope["method"] not in READING and origins != [own]:
        raise RefusedError(403, "no_origin", f"Say that a page of this app asks: Origin: {own}")
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    is_link = follows_link and scope.get("method", "GET") in READING
    may_be_linked = scope["path"] in PAGES or (with_provider and scope["path"] == CALLBACK)
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not (is_link and may_be_linked):
        raise RefusedError(403, "foreign_site", "This app answers to its own pages only.")


def comes_by_link(scope: Scope) -> bool:
    """Whether somebody follows a link on a page of another site: then the browser keeps its cookies to itself."""
    return Headers(scope=scope).get("sec-fetch-site", "none") in ("cross-site", "same-site")


def is_local(scope: Scope) -> bool:
    """Whether caller and server are both on this computer's loopback, with no proxy between them that says so."""
    client, server = scope.get("client") or (None,), scope.get("server") or (None,)
    is_forwarded = any(name in Headers(scope=scope) for name in FORWARDED)
    return is_loopback(client[0]) and is_loopback(server[0]) and not is_forwarded
