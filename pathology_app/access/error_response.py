"""Refused requests: the error, and the response that reports it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from pathology_app.access.plain_page import link, paragraph, plain_page
from training.foundation.errors import GemslideError


class RefusedError(GemslideError):
    """A request that the guard refuses.

    Args:
        status: of the HTTP response.
        code: the error code for programs.
        allowed: permitted methods, where the request used another one.
    """

    def __init__(self, status: int, code: str, message: str, *, allowed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status, self.code, self.allowed = status, code, allowed


async def send_error(refused: RefusedError, scope: Scope, receive: Receive, send: Send) -> None:
    """Respond to a request, or a WebSocket's handshake, with the refusal."""
    if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    await _response(refused, scope)(scope, receive, send)


def _response(refused: RefusedError, scope: Scope) -> Response:
    # Closed, because an unread body may still be arriving.
    headers = {"Cache-Control": "no-store", "Connection": "close"}
    if refused.status == 405:
        headers["Allow"] = ", ".join(refused.allowed)
    accepted = dict(scope["headers"]).get(b"accept", b"")
    if refused.status == 401 and b"text/html" in accepted:
        page = plain_page("Log in", paragraph(refused) + link("/", "Open the worklist"), 401)
        page.headers.update(headers)
        return page
    return JSONResponse({"code": refused.code, "message": str(refused)}, status_code=refused.status, headers=headers)
