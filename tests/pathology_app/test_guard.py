"""The guard, tested in process: requests that it admits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from pathology_app.access.guard import WEBSOCKET, Access, Guard
from pathology_app.access.quotas import MAX_PAGES, Page
from pathology_app.access.sign_in_routes import sign_in_routes
from pathology_app.annotating.routes import annotation_routes
from pathology_app.callers.host_names import Names, parse_names
from pathology_app.people.sign_in import SignIn
from pathology_app.project.ledger import StudyLedger
from pathology_app.routes.declared import only_declared, openings_of
from pathology_app.routes.paths import WritableRoutes
from pathology_app.slides.cache import SlideCache
from pathology_app.tiles.review_routes import review_routes
from pipeline.ledger import Sessions, key_of
from pipeline.project import Project
from pipeline.units import RESEARCH_USE
from tests.pathology_app.ask import ask, served
from training.foundation.errors import BadRecipeError

TILE = "/tiles/S-001/0/0_0"
FAR = {"client": ("10.0.0.7", 5000), "server": ("10.0.0.5", 8501)}
FAR_HOST = {"host": "10.0.0.5:8501"}


class Terminal:
    """The operator's terminal: tokens printed there, and a clock that tests set."""

    def __init__(self, root: Path) -> None:
        self.tokens: list[str] = []
        self.now_s = 1_000_000.0
        self.ledger = StudyLedger(Project(root))
        self.sign_in = SignIn(self.ledger, self.tokens.append, clock=lambda: self.now_s)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """Terminal over a project without a ledger."""
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.sign_in.close()
    terminal.ledger.close()


Make = Callable[..., Guard]


@pytest.fixture
def guard(terminal: Terminal) -> Make:
    def make(*names: str, everybody_logs_in: bool = False) -> Guard:
        access = Access(terminal.sign_in, Names(parse_names(names)), everybody_logs_in)
        return Guard(served, access, Path("main.py"), openings)

    cache = SlideCache(terminal.ledger.project)
    routes = [*annotation_routes(cache, terminal.ledger), *review_routes(cache), *sign_in_routes()]
    openings = openings_of(only_declared(routes))
    return make


@pytest.mark.parametrize("host", ["127.0.0.1:8501", "localhost:8501", "LocalHost:8501", "[::1]:8501"])
def test_the_loopback_names_with_the_port_are_served(guard: Make, host: str) -> None:
    assert ask(guard(), TILE, {"host": host}).status == 200
    assert ask(guard(), WEBSOCKET, {"host": host}, kind="websocket").status == 101


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:80", "127.0.0.1:85011", "localhost", "evil.example:8501", "localhost.evil.example:8501",
        "127.0.0.1:8501.evil.example", "0.0.0.0:8501", "user@127.0.0.1:8501", "127.0.0.1:8501/", "", "127.1:8501",
        "2130706433:8501", "127.0.0.1:08501", "localhost.:8501", "[::ffff:127.0.0.1]:8501",
    ],
)  # fmt: skip
def test_any_other_name_is_refused(guard: Make, host: str) -> None:
    for kind, path in (("http", "/"), ("http", TILE), ("websocket", WEBSOCKET)):
        answer = ask(guard(), path, {"host": host}, kind=kind)
        assert (answer.status, json.loads(answer.body)["code"]) == (400, "unknown_host")


def test_two_names_and_two_origins_are_refused(guard: Make) -> None:
    twice = [("host", "127.0.0.1:8501"), ("host", "127.0.0.1:8501")]
    assert ask(guard(), TILE, twice).status == 400
    assert ask(guard(), TILE, [("origin", "http://127.0.0.1:8501")] * 2).status == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example", "http://localhost:8501", "https://127.0.0.1:8501", "http://127.0.0.1", "null", "",
        "http://127.0.0.1:8502", "http://127.0.0.1:8501.evil.example", "http://127.0.0.1:8501/", "file://",
        "HTTP://127.0.0.1:8501", "http://user@127.0.0.1:8501",
    ],
)  # fmt: skip
def test_a_foreign_origin_is_refused(guard: Make, origin: str) -> None:
    for kind, path in (("http", "/"), ("http", TILE), ("websocket", WEBSOCKET)):
        answer = ask(guard(), path, {"origin": origin}, kind=kind)
        assert (answer.status, json.loads(answer.body)["code"]) == (403, "foreign_origin")


def test_the_own_origin_is_served(guard: Make) -> None:
    for kind, path, status in (("http", TILE, 200), ("websocket", WEBSOCKET, 101)):
        assert ask(guard(), path, {"origin": "http://127.0.0.1:8501"}, kind=kind).status == status


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_to_pages_and_load_nothing(guard: Make, site: str) -> None:
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert ask(guard(), "/?slide=S-001", link).status == 200
    assert ask(guard(), TILE, link).status == 403
    assert ask(guard(), "/", {**link, "sec-fetch-dest": "iframe"}).status == 403
    assert ask(guard(), "/", {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}).status == 403
    assert ask(guard(), TILE, {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}).status == 403
    assert ask(guard(), WEBSOCKET, {"sec-fetch-site": site}, kind="websocket").status == 403
    assert ask(guard(), TILE, {"sec-fetch-site": "same-origin"}).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND"])
def test_nothing_can_be_sent_to_the_app(guard: Make, method: str) -> None:
    answer = ask(guard(), "/_stcore/upload_file/x/y", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


@pytest.mark.parametrize("header", [{"content-length": "5"}, {"transfer-encoding": "chunked"}, {"content-length": "x"}])
def test_a_request_with_a_body_is_refused(guard: Make, header: dict[str, str]) -> None:
    assert ask(guard(), "/", header).status == 413
    assert ask(guard(), "/", {"content-length": "0"}).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/_stcore/metrics", "/_stcore/upload_file/a/b", "/_stcore/script-health-check", "/_stcore/agent/interact",
        "/_stcore/agent/mcp", "/_stcore/agent/openapi.json", "/_stcore/bidi-components/x/y", "/auth/login",
        "/oauth2callback", "/app/static/x", "/media/x.png", "/component/x/y",
        "/st-metrics", "/healthz", "/elsewhere", "//evil.example",
    ],
)  # fmt: skip
def test_what_the_app_does_not_need_is_not_served(guard: Make, path: str) -> None:
    assert ask(guard(), path).status == 404


def test_every_answer_carries_the_security_headers(guard: Make) -> None:
    for answer in (ask(guard(), "/"), ask(guard(), "/", {"host": "evil.example"}), ask(guard(), "/", **FAR)):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["referrer-policy"] == "same-origin"


def test_no_more_pages_than_the_app_can_bear(guard: Make) -> None:
    full = guard()
    for number in range(MAX_PAGES):
        full._pages.add(Page(f"person {number}", False, lambda: None))
    assert ask(full, WEBSOCKET, kind="websocket").status == 503


def test_a_link_lets_one_browser_in_and_the_next_gets_another(guard: Make, terminal: Terminal) -> None:
    app = guard(everybody_logs_in=True)
    refused = ask(app, "/", {"accept": "text/html,*/*"})
    assert (refused.status, terminal.tokens[0] in refused.body.decode()) == (401, False)
    assert RESEARCH_USE in refused.body.decode()
    assert ask(app, TILE).status == ask(app, WEBSOCKET, kind="websocket").status == 401
    (token,) = terminal.tokens

    welcome = ask(app, f"/?slide=S-001&token={token}")

    cookie = welcome.headers["set-cookie"]
    assert f"Max-Age={terminal.sign_in.life_s:.0f}" in cookie
    assert f"for {terminal.sign_in.life_s / 3600:g} h." in refused.body.decode()
    assert (welcome.status, welcome.headers["location"]) == (303, "/?slide=S-001")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    session = {"cookie": cookie.split(";")[0]}
    assert ask(app, TILE, session).status == 200
    assert ask(app, WEBSOCKET, session, kind="websocket").status == 101
    again = ask(app, f"/?token={token}")
    assert (again.status, json.loads(again.body)["code"]) == (401, "link_is_spent")
    assert len(terminal.tokens) == 2
    assert ask(app, f"/?token={terminal.tokens[1]}").status == 303
    terminal.now_s += terminal.sign_in.life_s + 1
    assert ask(app, TILE, session).status == 401


def test_an_open_page_ends_with_its_session(terminal: Terminal) -> None:
    terminal.sign_in.links.offer()
    session = terminal.sign_in.spend(terminal.tokens[0])
    terminal.now_s += terminal.sign_in.life_s - 0.05

    async def waits_for_ever(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        terminal.now_s += 1
        await asyncio.Event().wait()

    app = Guard(waits_for_ever, Access(terminal.sign_in, everybody_logs_in=True), Path("main.py"), WritableRoutes())
    answer = ask(app, WEBSOCKET, {"cookie": f"gemslide_session_8501={session}"}, kind="websocket")
    assert (answer.status, answer.closed_with) == (101, 1008)


def test_behind_https_the_cookie_is_for_https_only(guard: Make, terminal: Terminal) -> None:
    app = guard("slides.example.org")
    headers = {"host": "slides.example.org", "x-forwarded-proto": "https"}
    assert ask(app, TILE, headers).status == 401
    answer = ask(app, f"/?token={terminal.tokens[0]}", headers)
    assert "Secure" in answer.headers["set-cookie"]
    cookie = {"cookie": answer.headers["set-cookie"].split(";")[0]}
    own = {"origin": "https://slides.example.org"}
    assert ask(app, WEBSOCKET, {**headers, **cookie, **own}, kind="websocket").status == 101
    insecure = {"origin": "http://slides.example.org"}
    assert ask(app, WEBSOCKET, {**headers, **cookie, **insecure}, kind="websocket").status == 403


@pytest.mark.parametrize("token", ["", "x", "é", "0" * 5000, "%00", "a&token=b"])
def test_a_guessed_token_is_refused(guard: Make, token: str) -> None:
    assert ask(guard(everybody_logs_in=True), f"/?token={token}").status == 401


def test_a_token_is_spent_by_opening_the_page_only(guard: Make, terminal: Terminal) -> None:
    app = guard(everybody_logs_in=True)
    terminal.sign_in.links.offer()
    link = f"/?token={terminal.tokens[0]}"
    assert ask(app, link, method="HEAD").status == 401
    assert ask(app, link, {"host": "evil.example"}).status == 400
    assert ask(app, link, {"origin": "http://evil.example"}).status == 403
    assert ask(app, link.replace("/?", "/slide?")).status == 401
    assert ask(app, link).status == 303


def test_no_log_of_the_server_sees_the_token(guard: Make) -> None:
    """Servers log the query in the scope."""
    scopes = []

    async def seen(scope: dict[str, object], receive: object, send: object) -> None:
        scopes.append(scope)
        await guard(everybody_logs_in=True)(scope, receive, send)  # type: ignore[arg-type]

    ask(seen, "/?slide=S-001&token=secret")  # type: ignore[arg-type]
    assert scopes[0]["query_string"] == b"slide=S-001"


@pytest.mark.parametrize(
    ("headers", "ends", "status"),
    [
        ({}, {}, 200),
        ({"host": "localhost:8501"}, {"client": ("::1", 5000), "server": ("::1", 8501)}, 200),
        ({}, {"client": ("::ffff:127.0.0.1", 5000)}, 200),
        (FAR_HOST, FAR, 401),
        ({}, {"client": ("10.0.0.7", 5000)}, 401),
        ({}, {"client": None}, 401),
        ({"x-forwarded-for": "127.0.0.1"}, {}, 401),
        ({"forwarded": "for=127.0.0.1"}, {}, 401),
    ],
)
def test_behind_any_server_only_this_computer_needs_no_login(
    guard: Make, headers: dict[str, str], ends: dict[str, object], status: int
) -> None:
    assert ask(guard(), TILE, dict(headers), **ends).status == status  # type: ignore[arg-type]


def test_a_public_name_means_that_everybody_logs_in(guard: Make) -> None:
    assert ask(guard("slides.example.org"), TILE).status == 401
    assert ask(guard("localhost:9000"), TILE, {"host": "localhost:9000"}).status == 200


@pytest.mark.parametrize("name", ["http://x", "x/y", "", "a b", "x:", "x:port", "[", "*.example.org", "é.example"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(BadRecipeError, match="expected the part"):
        parse_names([name])


POST = {"origin": "http://127.0.0.1:8501", "content-length": "20"}


def test_what_annotates_may_be_sent_by_the_apps_own_pages(guard: Make) -> None:
    for path in ("/annotations/S-001", "/annotations/S-001/join", "/annotations/S-001/import"):
        assert ask(guard(), path, POST, method="POST").status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-length": "20"}, 403),
        ({**POST, "origin": "http://evil.example"}, 403),
        ({**POST, "sec-fetch-site": "cross-site"}, 403),
        ({**POST, "content-length": str((1 << 20) + 1)}, 413),
        ({**POST, "content-length": "-1"}, 411),
        ({**POST, "content-length": "1e3"}, 411),
        ({"origin": POST["origin"]}, 411),
        ({**POST, "transfer-encoding": "chunked"}, 411),
    ],
)
def test_what_strangers_send_and_what_is_too_much_is_refused(guard: Make, headers: dict[str, str], status: int) -> None:
    assert ask(guard(), "/annotations/S-001", dict(headers), method="POST").status == status


@pytest.mark.parametrize(
    "path", ["/annotations/", "/annotations/a/b/c", "/annotations/a/changes", "/tiles/S-001/0/0_0"]
)
def test_nothing_is_sent_where_nothing_is_taken(guard: Make, path: str) -> None:
    assert ask(guard(), path, dict(POST), method="POST").status == 405


def test_who_is_not_logged_in_sends_nothing(guard: Make) -> None:
    assert ask(guard(everybody_logs_in=True), "/annotations/S-001", dict(POST), method="POST").status == 401


@pytest.mark.parametrize(
    "path", ["/coverage/S-001.json", "/hotspots/S-001/m-0.json?study=s&reader=r&session=1&position=1"]
)
def test_what_was_looked_at_and_judged_may_be_sent_by_the_apps_own_pages(guard: Make, path: str) -> None:
    assert ask(guard(), path, POST, method="POST").status == 200
    assert ask(guard(), path, {**POST, "content-length": "65537"}, method="POST").status == 413


def test_a_session_that_somebody_sent_with_the_project_lets_nobody_in(guard: Make, terminal: Terminal) -> None:
    sent = Sessions(terminal.ledger.made().database, clock=lambda: terminal.now_s)
    keys = [sent.make("session", 10 * 365 * 86_400.0), sent.make("link", 10 * 365 * 86_400.0)]
    account = sent.make("session", 3600.0, name="ada", stamp="s")
    terminal.sign_in.revoke_links()
    app = guard(everybody_logs_in=True)
    assert ask(app, f"/?token={keys[1]}").status == 401
    assert ask(app, TILE, {"cookie": f"gemslide_session_8501={keys[0]}"}).status == 401
    found = sent.find(key_of(account))
    assert found is not None
    assert found.revoked is None, "an account's session has the account's stamp, which nobody else knows"
