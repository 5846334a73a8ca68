"""A request that is not served: the reason, and the short answer that says so."""

from __future__ import annotations

import html

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from pipeline.errors import GemslideError
from pipeline.units import RESEARCH_USE

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>gemslide</title>
<link rel="icon" href="data:,">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 4rem auto; max-width: 38rem; padding: 0 1rem; color: #31333f; }}
a {{ color: #b0175b; }}
.notice {{ color: #b0175b; }}
</style>
</head>
<body>
<p><strong>gemslide</strong> <span class="notice">{notice}</span></p>
<h1>{title}</h1>
<p>{message}</p>
<p><a href="/">Open the worklist</a></p>
</body>
</html>
"""


class RefusedError(GemslideError):
    """A request that the guard does not let through.

    Args:
        status: of the HTTP answer.
        code: what a program goes by.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


async def answer(refused: RefusedError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a WebSocket's handshake, with the refusal."""
    if scope["type"] == "websocket" and "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    await _response(refused, scope)(scope, receive, send)


def _response(refused: RefusedError, scope: Scope) -> Response:
    # Closed, because a body that nobody reads may still be on its way.
    headers = {"Cache-Control": "no-store", "Connection": "close"}
    if refused.status == 405:
        headers["Allow"] = "GET, HEAD, OPTIONS"
    accepted = dict(scope["headers"]).get(b"accept", b"")
    if refused.status == 401 and b"text/html" in accepted:
        page = _PAGE.format(notice=html.escape(RESEARCH_USE), title="Log in", message=html.escape(str(refused)))
        return HTMLResponse(page, status_code=401, headers=headers)
    return JSONResponse({"code": refused.code, "message": str(refused)}, status_code=refused.status, headers=headers)
