"""The cookies of one request: their names, and how they are set."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from pathology_app.callers.addresses import address_of


@dataclass(frozen=True)
class Cookies:
    """Cookies of the app that a request is for. Browsers share cookies between ports, so their names include the port;
    processes behind one proxy share them."""

    scope: Scope

    @property
    def session(self) -> str:
        return self._name("session")

    @property
    def form(self) -> str:
        return self._name("form")

    @property
    def next(self) -> str:
        return self._name("next")

    @property
    def address(self) -> str:
        """Address that the request comes from."""
        return address_of(self.scope)

    def read(self, name: str) -> str | None:
        return HTTPConnection(self.scope).cookies.get(name)

    def give(self, response: Response, token: str, life_s: float) -> None:
        """Set the session cookie, which lets the browser in."""
        self.set(response, self.session, token, life_s)

    def set(self, response: Response, name: str, value: str, life_s: float) -> None:
        response.set_cookie(
            name, value, max_age=int(life_s), httponly=True, samesite="strict", secure=is_https(self.scope)
        )

    def drop(self, response: Response, name: str) -> None:
        response.delete_cookie(name, httponly=True, samesite="strict", secure=is_https(self.scope))

    def _name(self, what: str) -> str:
        port = Headers(scope=self.scope).get("host", "").rpartition("]")[2].rpartition(":")[2]
        # The prefix makes browsers refuse it from a page of any other name.
        return f"{'__Host-' if is_https(self.scope) else ''}gemslide_{what}_{port if port.isdecimal() else 0}"


def is_https(scope: Scope) -> bool:
    """Whether the page is served over https. A proxy that says so is trusted: that can only narrow what is let in."""
    return scope.get("scheme") in ("https", "wss") or Headers(scope=scope).get("x-forwarded-proto") == "https"
