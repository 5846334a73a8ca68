"""Responses to requests without a sign-in: people are redirected to it, others refused."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Scope, Send

from pathology_app.access.error_response import RefusedError
from pathology_app.access.plain_page import link, paragraph, plain_page
from pathology_app.access.senders import comes_by_link
from pathology_app.access.sign_in_routes import own_path, sign_in_link
from pathology_app.routes.paths import PAGES


def is_page(scope: Scope) -> bool:
    """Whether a browser requests a page."""
    accepts = dict(scope["headers"]).get(b"accept", b"")
    return scope["type"] == "http" and scope["method"] == "GET" and scope["path"] in PAGES and b"text/html" in accepts


def redirect_to_sign_in(scope: Scope) -> ASGIApp:
    """Redirect a person who is not signed in to the sign-in page, and back afterwards."""
    query = scope["query_string"].decode("latin-1")
    wanted = own_path(scope["path"] + (f"?{query}" if query else ""))
    if not comes_by_link(scope):
        return RedirectResponse(sign_in_link(wanted), 303, headers={"Cache-Control": "no-store"})
    # The browser withheld the cookie, since the link is on another site; for our own page it sends it.
    body = paragraph("One moment …") + link(wanted, "Continue")
    return plain_page("Opening", body, goes_to=wanted)


def signed_out(*, had_one: bool) -> RefusedError:
    code = "session_is_over" if had_one else "log_in"
    return RefusedError(401, code, "Sign in: your session has ended, or there was none.")


def log_in(*, had_one: bool, session_s: float) -> RefusedError:
    """Ask for the link on the terminal. `session_s`: how long a session lasts once it has been opened."""
    return RefusedError(
        401,
        "session_is_over" if had_one else "log_in",
        "Open the link that gemslide printed on the terminal where it runs. It works once and lets this browser in "
        f"for {session_s / 3600:g} h. If you have logged in before and followed a link from elsewhere, continue to the "
        "worklist.",
    )


def back_to_our_page(send: Send) -> Send:
    """`send` that redirects to our page: Streamlit would lead from the provider to the first page, as if signed in."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 302:
            headers = [pair for pair in message["headers"] if pair[0].lower() != b"location"]
            message["headers"] = [*headers, (b"location", b"/?sign-in=done")]
        await send(message)

    return guarded
