"""The sign-in and sign-out pages: plain HTML, which also works in browsers without scripts. Only the list of answers
that the browser keeps needs one.

GET, POST /sign-in?next=/…      POST: form, token, name, password
GET, POST /sign-out             POST: form token
"""

from __future__ import annotations

import hmac
import html
import re
import secrets
from urllib.parse import parse_qsl, quote

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from pathology_app.access.plain_page import link, paragraph, plain_page
from pathology_app.access.unfinished import unfinished_html
from pathology_app.callers.cookies import Cookies
from pathology_app.people.person import person_of
from pathology_app.people.sign_in import BadSignInError, SignIn, TooManyAttemptsError
from pathology_app.routes.bodies import LateBodyError, TooLargeError, body_of
from pathology_app.routes.declared import plain
from pathology_app.routes.paths import SIGN_IN, SIGN_OUT, AcceptedBody
from pipeline.ledger import key_of
from training.foundation.errors import GemslideError

SIGN_IN_KEY = "gemslide.sign_in"
"""In a request's scope: the app's SignIn."""
SESSION_KEY = "gemslide.session"
"""In a request's scope: key of its session, or None."""
FORM_S = 3600
MAX_FORM_BYTES, MAX_FIELDS = 16_384, 8
_OWN_PATH = re.compile(r"/(?:[?#].*|[A-Za-z0-9._~-][^\\\x00-\x20]*)?", re.ASCII)
_AT_ONCE = anyio.CapacityLimiter(2)
"""Passwords checked at once: each takes 64 MiB."""


def sign_in_routes() -> list[BaseRoute]:
    """Both pages."""
    return [
        plain(SIGN_IN, _sign_in_page, methods=["GET"]),
        plain(SIGN_IN, _sign_in, methods=["POST"], takes=AcceptedBody(MAX_FORM_BYTES, None)),
        plain(SIGN_OUT, _sign_out_page, methods=["GET"]),
        plain(SIGN_OUT, _sign_out, methods=["POST"], takes=AcceptedBody(MAX_FORM_BYTES, None)),
    ]


def own_path(wanted: str | None) -> str:
    """The requested path, with its query, if it is one of this app; the start page for anything else."""
    if wanted and len(wanted) <= 2000 and _OWN_PATH.fullmatch(wanted) and not wanted.startswith((SIGN_IN, SIGN_OUT)):
        return wanted
    return "/"


def sign_in_link(wanted: str) -> str:
    """Link to the sign-in page, which leads on to a path of this app."""
    return f"{SIGN_IN}?next={quote(wanted, safe='/')}" if own_path(wanted) != "/" else SIGN_IN


async def _sign_in_page(request: Request) -> Response:
    sign_in: SignIn = request.scope[SIGN_IN_KEY]
    wanted = own_path(request.query_params.get("next"))
    if not sign_in.is_by_account or person_of(request.scope).name:
        return RedirectResponse(wanted, 303)
    return _form(request, wanted)


async def _sign_in(request: Request) -> Response:
    sign_in: SignIn = request.scope[SIGN_IN_KEY]
    fields = await _form_fields(request)
    wanted = own_path(fields.get("next"))
    if not _is_own_form(request, fields):
        return _form(request, wanted, error="The form has expired. Try again.", status=403)
    address = Cookies(request.scope).address
    name, password = fields.get("name", "").strip(), fields.get("password", "")
    try:
        token = await anyio.to_thread.run_sync(sign_in.sign_in, name, password, address, limiter=_AT_ONCE)
    except TooManyAttemptsError as error:
        return _form(request, wanted, error=str(error), status=429)
    except BadSignInError as error:
        return _form(request, wanted, error=str(error), name=name, status=401)
    except GemslideError:
        return _form(request, wanted, error="Nobody can sign in right now. Ask the app's operator.", status=503)
    response = RedirectResponse(wanted, 303, headers={"Cache-Control": "no-store"})
    cookies = Cookies(request.scope)
    cookies.give(response, token, sign_in.life_s)
    cookies.drop(response, cookies.form)
    return response


def _form(request: Request, wanted: str, *, error: str = "", name: str = "", status: int = 200) -> Response:
    sign_in: SignIn = request.scope[SIGN_IN_KEY]
    token = secrets.token_urlsafe(32)
    notice = paragraph(error, kind="error") if error else ""
    form = f"""<form method="post" action="{SIGN_IN}">
<input type="hidden" name="form" value="{token}"><input type="hidden" name="next" value="{html.escape(wanted)}">
<label><span>Name</span><input name="name" autocomplete="username" required maxlength="64" autocapitalize="none"
 spellcheck="false" value="{html.escape(name[:64])}"{"" if name else " autofocus"}></label>
<label><span>Password</span><input name="password" type="password" autocomplete="current-password" required
 maxlength="1024"{" autofocus" if name else ""}></label>
<button type="submit">Sign in</button>
</form>
"""
    parts = [notice]
    if sign_in.provider is not None:
        parts.append('<p><a class="button" href="/?sign-in=start">Sign in with your institution</a></p>\n')
    if sign_in.accounts.exist and (sign_in.provider is None or _have_passwords(sign_in)):
        parts += ["<hr>\n" if sign_in.provider is not None else "", form]
    response = plain_page("Sign in", "".join(parts), status)
    cookies = Cookies(request.scope)
    cookies.set(response, cookies.form, token, FORM_S)
    cookies.set(response, cookies.next, quote(wanted, safe=""), FORM_S)
    if status == 429:
        response.headers["Retry-After"] = "900"
    return response


def _have_passwords(sign_in: SignIn) -> bool:
    try:
        return any(account.password for account in sign_in.accounts.all().values())
    except GemslideError:
        return True  # the form then reports that nobody can sign in


async def _sign_out_page(request: Request) -> Response:
    person, sign_in = person_of(request.scope), request.scope[SIGN_IN_KEY]
    if person.name is None:
        return RedirectResponse("/", 303)
    token = secrets.token_urlsafe(32)
    key: str | None = request.scope.get(SESSION_KEY)
    work = await anyio.to_thread.run_sync(unfinished_html, sign_in, person, key)
    body = (
        paragraph(f"You are signed in as {person.name}.")
        + work
        + (
            f'<form method="post" action="{SIGN_OUT}"><input type="hidden" name="form" value="{token}">'
            '<button type="submit">Sign out</button></form>\n'
        )
    )
    response = plain_page("Sign out", body + link("/", "Keep working"))
    cookies = Cookies(request.scope)
    cookies.set(response, cookies.form, token, FORM_S)
    return response


async def _sign_out(request: Request) -> Response:
    sign_in: SignIn = request.scope[SIGN_IN_KEY]
    key: str | None = request.scope.get(SESSION_KEY)
    if not _is_own_form(request, await _form_fields(request)):
        return RedirectResponse(SIGN_OUT, 303)
    try:
        if key is not None:
            await anyio.to_thread.run_sync(sign_in.sign_out, key)
    except GemslideError:
        notice = paragraph("You could not be signed out. Try again.", kind="error")
        return plain_page("Sign out", notice + link(SIGN_OUT, "Try again"), 503)
    response = plain_page("Signed out", paragraph("You are signed out.") + link(SIGN_IN, "Sign in again"))
    # Browsers may cache tiles for ever, but not for the next person.
    response.headers["Clear-Site-Data"] = '"cache"'
    cookies = Cookies(request.scope)
    for name in (cookies.session, cookies.form, cookies.next):
        cookies.drop(response, name)
    return response


async def _form_fields(request: Request) -> dict[str, str]:
    """The fields of a form as our pages send it, each once; none if it is another, or did not arrive in time."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    try:
        text = (await body_of(request, MAX_FORM_BYTES)).decode()
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS))
    except (LateBodyError, TooLargeError, ValueError):
        return {}


def _is_own_form(request: Request, fields: dict[str, str]) -> bool:
    """Whether the form was given to this browser: its token is in a cookie, too."""
    token = request.cookies.get(Cookies(request.scope).form, "")
    return bool(token) and hmac.compare_digest(key_of(token), key_of(fields.get("form", "")))
