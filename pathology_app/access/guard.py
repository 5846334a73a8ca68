"""The guard: one ASGI middleware in front of Streamlit's routes and ours, HTTP and WebSocket alike.

It checks in this order: is the app called by one of its own names, from one of its own pages, for something that is
served, by somebody who is signed in and allowed to do it? Streamlit's own check of a WebSocket's Origin comes later and
accepts whatever passes here; for other origins it would ask the internet for this computer's address.

After it, a request's scope names the sender (`people.person_of`), and a page's WebSocket has a header for that, which
no browser can forge.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pathology_app.access.bodies import bounded, check_body
from pathology_app.access.error_response import RefusedError, send_error
from pathology_app.access.frames import is_by_hand, without_script_path
from pathology_app.access.headers import with_security_headers
from pathology_app.access.leaving import callers_may_leave
from pathology_app.access.quotas import STRANGER_S, Page, Pages, Requests
from pathology_app.access.senders import check_names, check_sender, comes_by_link, is_local
from pathology_app.access.sign_in_redirect import back_to_our_page, is_page, log_in, redirect_to_sign_in, signed_out
from pathology_app.access.sign_in_routes import SESSION_KEY, SIGN_IN_KEY, own_path
from pathology_app.access.slide_gate import check_slide_of
from pathology_app.callers.addresses import ADDRESS_KEY, address_of, client_address, neighbourhood
from pathology_app.callers.cookies import Cookies
from pathology_app.callers.host_names import Names
from pathology_app.people.person import NOBODY, PERSON_KEY, VISITOR_HEADER, Person
from pathology_app.people.provider import CALLBACK
from pathology_app.people.sign_in import NONE, OPEN, SignIn, visitor_header
from pathology_app.routes.paths import READING, WEBSOCKET, WritableRoutes, is_before_sign_in, is_served
from pipeline.ledger import key_of
from pipeline.settings.site import Network
from training.foundation.errors import GemslideError

WATCH_S = 5.0
"""Interval between checks that the session of an open page is still valid."""


@dataclass(frozen=True)
class Access:
    """Rules on who is let in.

    Attributes:
        names: the app's own.
        sign_in: sessions, and the people they belong to.
        everybody_logs_in: callers from this computer, too, not only those from others. With accounts, everybody does.
        proxies: those whose X-Forwarded-For is trusted.
    """

    sign_in: SignIn
    names: Names = field(default_factory=Names)
    everybody_logs_in: bool = False
    proxies: tuple[Network, ...] = ()


@dataclass(frozen=True)
class Caller:
    """Sender of a request.

    Attributes:
        key: of the session; None where there is none.
        left_s: seconds until the session ends; None: it does not end.
    """

    person: Person
    key: str | None = None
    left_s: float | None = None


class Guard:
    """Admits requests that are meant for this app, and sets the security headers on every response."""

    def __init__(self, app: ASGIApp, access: Access, script: Path, openings: WritableRoutes) -> None:
        """Guard an app.

        Args:
            script: Streamlit's, whose folder no response discloses.
            openings: routes of the app that accept a body.
        """
        self._app, self._access, self._script, self._openings = app, access, script, openings
        self._sign_in = access.sign_in
        self._pages, self._requests = Pages(), Requests()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope[ADDRESS_KEY] = client_address(scope, self._access.proxies)
        async with callers_may_leave():
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = None
        send = with_security_headers(send, by_session=lambda: caller is not None and caller.key is not None)
        try:
            token = _take_token(scope)
            self._check_request(scope)
            if token is not None and scope["type"] == "http" and scope["method"] == "GET":
                await self._spend(token, scope, receive, send)
                return
            caller = await self._caller(scope)
            if caller is None:
                await redirect_to_sign_in(scope)(scope, receive, send)
                return
            self._check_action(scope, caller)
            await check_slide_of(scope, self._sign_in, caller.person, caller.key)
            scope[PERSON_KEY], scope[SESSION_KEY], scope[SIGN_IN_KEY] = caller.person, caller.key, self._sign_in
            if scope["type"] == "http":
                await self._serve(scope, receive, send, caller)
            else:
                await self._serve_websocket(scope, receive, send, caller)
        except RefusedError as refused:
            self._note(refused, scope, caller)
            await send_error(refused, scope, receive, send)
            return

    def _check_request(self, scope: Scope) -> None:
        """Raises RefusedError: an unknown host name, another site's page, or a path that is not served."""
        with_provider = self._sign_in.provider is not None
        check_names(scope, self._access.names)
        if scope["type"] == "websocket":
            check_sender(scope, with_provider=with_provider)
            if scope["path"] != WEBSOCKET:
                raise RefusedError(404, "not_found", "There is no page at this address.")
            return
        opening = self._openings.of(scope["path"])
        allowed = (*READING, *(opening.methods if opening else ()))
        if scope["method"] not in allowed:
            check_sender({**scope, "method": "GET"}, with_provider=with_provider)
            raise RefusedError(405, "method", f"Only {', '.join(allowed)} are allowed here.", allowed=allowed)
        check_sender(scope, with_provider=with_provider)
        check_body(scope, opening)
        if not is_served(scope["path"], with_provider=with_provider):
            raise RefusedError(404, "not_found", "There is no page at this address.")

    async def _caller(self, scope: Scope) -> Caller | None:
        """Find the sender of a request; None for a browser that can be redirected to the sign-in page.

        Raises:
            RefusedError: not signed in; 503: the session cannot be checked now.
        """
        sign_in, access = self._sign_in, self._access
        is_by_account = sign_in.is_by_account
        if not (is_by_account or access.everybody_logs_in or access.names.are_public) and is_local(scope):
            return Caller(Person())
        token = Cookies(scope).read(Cookies(scope).session)
        if token and (caller := await self._behind(token)):
            return caller
        if is_by_account:
            query = scope["query_string"].decode("latin-1")
            if is_before_sign_in(scope["path"], query, with_provider=sign_in.provider is not None):
                return Caller(NOBODY)
            if is_page(scope):
                return None
            raise signed_out(had_one=bool(token))
        await self._offer()
        raise log_in(had_one=bool(token), session_s=sign_in.life_s)

    async def _behind(self, token: str) -> Caller | None:
        """Find the person that a session belongs to. Raises RefusedError: it cannot be checked now."""
        key = key_of(token)
        try:
            known = self._sign_in.session_cache.remembered(key, active=True)
            if known is not None:  # without a thread, since tile requests are frequent
                visitor = self._sign_in.visitor_of(known.session)
            else:
                visitor = await anyio.to_thread.run_sync(lambda: self._sign_in.visitor(key, active=True))
        except (GemslideError, OSError) as error:
            raise RefusedError(503, "cannot_know", "Access cannot be checked right now. Try again soon.") from error
        return Caller(visitor.person, key, visitor.left_s) if visitor else None

    async def _offer(self) -> None:
        try:
            await anyio.to_thread.run_sync(self._sign_in.links.offer)
        except (GemslideError, OSError) as error:
            raise RefusedError(503, "cannot_know", "Nobody can log in right now. Ask the app's operator.") from error

    def _check_action(self, scope: Scope, caller: Caller) -> None:
        """Raises RefusedError: the caller may not send anything there."""
        if scope["type"] != "http" or scope["method"] in READING:
            return
        opening = self._openings.of(scope["path"])
        action = opening.takes.action if opening else None
        if action and not caller.person.may(action):
            raise RefusedError(403, "forbidden", f"You may not {action}.")

    async def _serve(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        """Raises RefusedError: the caller has too many requests pending."""
        opening = self._openings.of(scope["path"])
        if opening is not None:
            receive = bounded(receive, opening.takes.max_bytes)
        if scope["path"] == CALLBACK:
            send = back_to_our_page(send)
        async with self._requests.turn(_holder(scope, caller)):
            await self._app(scope, receive, send)

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        """Serve a page's WebSocket until the page or the session ends.

        Raises:
            RefusedError: the caller has too many pages open.
        """
        is_signed_out, gives_way = caller.person is NOBODY, asyncio.Event()
        page = Page(_holder(scope, caller), is_signed_out, gives_way.set)
        self._pages.add(page, has_own_limit=caller.key is not None)
        key = caller.key or (NONE if is_signed_out else OPEN)
        name = VISITOR_HEADER.encode()
        headers = [pair for pair in scope["headers"] if pair[0].lower() != name]
        scope["headers"] = [*headers, (name, visitor_header(self._sign_in, key).encode())]
        if caller.key is not None:
            receive = self._noting(receive, caller.key)
        serving = asyncio.ensure_future(self._app(scope, receive, without_script_path(send, self._script)))
        watching = asyncio.ensure_future(self._watch(caller, gives_way))
        try:
            done, _ = await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
            if serving in done:
                await serving
        finally:
            self._pages.remove(page)
            for task in (serving, watching):
                task.cancel()
            await asyncio.gather(serving, watching, return_exceptions=True)
        if serving not in done:
            await send({"type": "websocket.close", "code": 1008})

    async def _watch(self, caller: Caller, gives_way: asyncio.Event) -> None:
        """Return when the page has to give way, the session ends in any process, or a stranger's time is up."""
        if caller.key is None:
            await _within(gives_way, STRANGER_S if caller.person is NOBODY else None)
            return
        key, left_s = caller.key, caller.left_s or 0.0
        while left_s > 0:
            if await _within(gives_way, min(left_s, WATCH_S)):
                return
            try:
                visitor = await anyio.to_thread.run_sync(lambda: self._sign_in.visitor(key, active=False))
            except (GemslideError, OSError):
                return
            left_s = visitor.left_s if visitor else 0.0

    def _noting(self, receive: Receive, key: str) -> Receive:
        """`receive` of a WebSocket that notes a person's activity."""

        async def guarded() -> Message:
            message = await receive()
            if is_by_hand(message) and self._sign_in.session_cache.remembered(key, active=True) is None:
                await anyio.to_thread.run_sync(self._note_active, key)
            return message

        return guarded

    def _note_active(self, key: str) -> None:
        try:
            self._sign_in.visitor(key, active=True)
        except (GemslideError, OSError):
            return  # the page reports that itself

    async def _spend(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Exchange a token for a cookie, and redirect to the link without the token.

        Raises:
            RefusedError: the token was used already or never issued.
        """
        try:
            # The token for a provider's answer was given to a page of this app, and can come from no other.
            is_own = not (self._sign_in.is_by_account and comes_by_link(scope))
            session = await anyio.to_thread.run_sync(self._sign_in.spend, token) if is_own else None
        except (GemslideError, OSError) as error:
            raise RefusedError(503, "cannot_know", "Nobody can log in right now. Ask the app's operator.") from error
        if session is None:
            raise RefusedError(
                401,
                "link_is_spent",
                "This link has been used or is not from this app: each works once. Ask for the link that is "
                "now on the terminal. If you have just used it in this browser, continue to the worklist.",
            )
        cookies = Cookies(scope)
        query = scope["query_string"].decode("ascii")
        target = own_path(dict(parse_qsl(f"to={cookies.read(cookies.next) or ''}")).get("to"))
        response = RedirectResponse(f"/?{query}" if query else target, status_code=303)
        response.headers["Cache-Control"] = "no-store"
        cookies.give(response, session, self._sign_in.life_s)
        for name in HTTPConnection(scope).cookies:
            if name.startswith("_streamlit_user"):  # the provider's answer has been used
                response.delete_cookie(name)
        await response(scope, receive, send)

    def _note(self, refused: RefusedError, scope: Scope, caller: Caller | None) -> None:
        if refused.code in ("log_in", "too_many", "cannot_know"):
            return  # nobody tried anything forbidden
        actor = caller.person.actor if caller and caller.key else "nobody (web app)"
        self._sign_in.refusals.note(actor, refused.code, about=scope["path"], address=Cookies(scope).address)


def _holder(scope: Scope, caller: Caller) -> str:
    """Holder whose quotas a request counts towards."""
    if caller.person.name is not None:
        return f"person {caller.person.name}"
    return f"session {caller.key}" if caller.key else f"from {neighbourhood(address_of(scope))}"


async def _within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether an event happens within so many seconds; None: waits for ever."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _take_token(scope: Scope) -> str | None:
    """The token in a page's link. It is removed from the scope, so that no server log shows it."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    tokens = [value for key, value in pairs if key == "token"]
    if not tokens:
        return None
    scope["query_string"] = urlencode([pair for pair in pairs if pair[0] != "token"]).encode("ascii")
    return tokens[0] if scope["path"] == "/" else None
