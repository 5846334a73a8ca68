"""People with or without a session who try to exceed their rights: forged and ended sessions, other people's
slides, cross-site forms, guessed passwords, paths that lead out.

    python -m tests.attacks.web_insiders --times 200 --seed 1

Promised: every attempt is refused and changes nothing, no response names a folder, and the log records refusals, holds
far fewer entries than there were attempts, and verifies.
"""

from __future__ import annotations

import random
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from pipeline.ledger import PROJECT_LOG, LogFilter, find_ledger, project_history
from pipeline.project import Project
from pipeline.study import verify_log
from tests.attacks.attack import Result, main
from tests.pathology_app.signed_in import PASSWORD, add_people, browser, cookie_of, sign_in
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

OF_SLIDE = (
    f"/tiles/{SLIDE_ID}/0/0_0", f"/overlays/{SLIDE_ID}/{MODEL_ID}/0.png", f"/layers/{SLIDE_ID}/tissue.png",
    f"/layers/{SLIDE_ID}/quality/0.png", f"/damaged/{SLIDE_ID}.png", f"/thumbnails/{SLIDE_ID}.jpg",
    f"/colour/{SLIDE_ID}", f"/exports/{SLIDE_ID}/{MODEL_ID}/predictions.csv", f"/annotations/{SLIDE_ID}/changes",
    f"/reports/{SLIDE_ID}/report.html", f"/annotations/{SLIDE_ID}/counts",
    f"/registrations/{SLIDE_ID}.json?to=S-002",
    f"/coverage/{SLIDE_ID}.json", f"/crops/{SLIDE_ID}/100_100.jpg", f"/heatmaps/{SLIDE_ID}/{MODEL_ID}/0.png",
)  # fmt: skip
OUT = (
    "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f" * 6 + "etc/passwd", "..\\..\\x", "%5c..%5c", "%00", "a%00b",
    "%c0%ae%c0%ae", "....//....//x", "/etc/passwd", "~root", "accounts.toml", "gemslide.db", "%ff",
)  # fmt: skip
ROUTES = (
    "/tiles/{}/0/0_0", "/tiles/S-001/{}", "/overlays/{}/m/0.png", "/overlays/S-001/{}/0.png", "/layers/{}/tissue.png",
    "/layers/S-001/{}", "/annotations/{}/changes", "/annotations/S-001/{}", "/exports/{}/m/predictions.csv",
    "/exports/S-001/{}/predictions.csv", "/coverage/{}.json", "/crops/{}/1_1.jpg",
    "/reports/{}/report.html", "/reports/S-001/{}",
    "/registrations/{}.json?to=S-002", "/registrations/S-001.json?to={}", "/registrations/S-001/{}",
    "/damaged/{}.png", "/thumbnails/{}.jpg", "/viewer/{}", "/static/{}", "/log.csv/{}", "/{}",
)  # fmt: skip

Try = Callable[["Insider", random.Random], httpx.Response]


class Insider:
    """Browsers of a reader and of a person who may not see the slide, and a session that has ended."""

    def __init__(self, app: StartedApp) -> None:
        self.app = app
        self.clients = [browser(app.url) for _ in range(3)]
        self.reader, self.stranger, self.signed_out = self.clients
        for client, name in ((self.reader, "rita"), (self.stranger, "bob"), (self.signed_out, "rita")):
            sign_in(client, name)
        self.ended = cookie_of(self.signed_out)
        form = self.signed_out.get("/sign-out").text.split('name="form" value="')[1].split('"')[0]
        self.signed_out.post("/sign-out", data={"form": form})

    def ask(self, method: str, path: str, cookie: str | None = None, **more: object) -> httpx.Response:
        """Send a request with a cookie of the attacker's choice."""
        headers = {"Origin": self.app.url, **({"Cookie": cookie} if cookie else {})}
        headers |= more.pop("headers", {})  # type: ignore[arg-type]
        return httpx.request(method, self.app.url + path, headers=headers, timeout=30, **more)  # type: ignore[arg-type]


def forged_session(insider: Insider, rng: random.Random) -> httpx.Response:
    """Use a session id that was never issued."""
    name, _, value = cookie_of(insider.reader).partition("=")
    changed = value[:-1] + ("A" if value[-1] != "A" else "B")
    guess = rng.choice(["", "0", secrets.token_urlsafe(32), changed, value.lower(), value + "x", "' OR 1=1 --", "{}"])
    return insider.ask("GET", rng.choice(OF_SLIDE), f"{name}={guess}")


def ended_session(insider: Insider, rng: random.Random) -> httpx.Response:
    """Use a session that its owner has signed out of."""
    return insider.ask("GET", rng.choice(OF_SLIDE), insider.ended)


def other_slides(insider: Insider, rng: random.Random) -> httpx.Response:
    """Request a slide that bob may not see."""
    return insider.stranger.get(rng.choice(OF_SLIDE))


def a_way_out(insider: Insider, rng: random.Random) -> httpx.Response:
    """Request a path that leads out of the project while signed in."""
    return insider.reader.get(rng.choice(ROUTES).format(rng.choice(OUT)))


def form_of_strangers(insider: Insider, rng: random.Random) -> httpx.Response:
    """Have another site's page make the reader's browser send a form."""
    origin = rng.choice(["http://evil.example", "null", "", f"http://127.0.0.1:{insider.app.port + 1}"])
    site = rng.choice(
        [{}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}]
    )
    path = rng.choice(["/sign-out", "/sign-in"])
    return insider.reader.post(path, headers={"Origin": origin, **site}, data={"form": "x", "name": "rita"})


def no_form_of_ours(insider: Insider, rng: random.Random) -> httpx.Response:
    """Sign in with the right name and password but a form that was not issued to this browser."""
    form = {"form": rng.choice(["", "x", secrets.token_urlsafe(32)]), "name": "ada", "password": PASSWORD}
    return insider.ask("POST", "/sign-in", data=form)


def too_long(insider: Insider, rng: random.Random) -> httpx.Response:
    """Send more than a form may hold."""
    return insider.ask("POST", "/sign-in", content=b"x" * rng.choice([16_385, 100_000, 1_000_000]))


def guessed_password(insider: Insider, rng: random.Random) -> httpx.Response:
    """Guess the password of an existing or unknown person."""
    with browser(insider.app.url) as client:
        return sign_in(client, rng.choice(["ada", "cora", "root"]), f"guess {rng.random()}")


def more_than_a_role(insider: Insider, rng: random.Random) -> httpx.Response:
    """Request something that a reader has no right to."""
    headers = rng.choice([{}, {"X-Gemslide-Visitor": "x open"}, {"X-Forwarded-User": "ada"}])
    return insider.reader.get("/log.csv", headers=headers)


def wrong_method(insider: Insider, rng: random.Random) -> httpx.Response:
    """Send a body to a route that accepts none."""
    return insider.reader.request(rng.choice(["POST", "PUT", "DELETE", "PATCH"]), rng.choice(OF_SLIDE))


TRIES: tuple[Try, ...] = (
    forged_session, ended_session, other_slides, a_way_out, form_of_strangers, no_form_of_ours, too_long,
    guessed_password, more_than_a_role, wrong_method,
)  # fmt: skip


def attack(times: int, seed: int) -> Result:
    """Make `times` attempts, each kind at least once."""
    result, rng = Result("insiders of the web app", times), random.Random(seed)
    chosen = [*TRIES, *rng.choices(TRIES, k=max(0, times - len(TRIES)))][:times]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        make_project(root)
        add_people(root)
        with started_app(root, Path(folder) / "server.log") as app:
            insider = Insider(app)
            for attempt in chosen:
                result.findings += _judge(attempt, attempt(insider, rng), root)
                result.check(
                    insider.reader.get(OF_SLIDE[0]).status_code == 200, f"{attempt.__name__}: the reader is out"
                )
            for client in insider.clients:
                client.close()
        result.findings += _log(root, times)
    return result


def _judge(attempt: Try, answer: httpx.Response, root: Path) -> Iterator[str]:
    what = f"{attempt.__name__} {answer.request.method} {answer.request.url.raw_path!r}"
    # For unknown files under /static, Streamlit returns its own empty page.
    is_start_page = attempt is a_way_out and "<title>Streamlit</title>" in answer.text
    if not 400 <= answer.status_code < 500 and not is_start_page and answer.status_code != 303:
        yield f"{what}: answered {answer.status_code}"
    if answer.status_code == 303 and answer.headers["location"] != "/sign-out":
        yield f"{what}: was let in"
    if any("_session_" in name and value for name, value in answer.cookies.items()):
        yield f"{what}: was given a session"
    if "content-security-policy" not in answer.headers:
        yield f"{what}: no security headers"
    for secret in (str(root), str(Path.home()) + "/", sys.prefix, "root:x:0"):
        if secret in answer.text:
            yield f"{what}: the answer names {secret}"


def _log(root: Path, times: int) -> Iterator[str]:
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger:
        entries = project_history(ledger, LogFilter(), newest=100_000)
        yield from verify_log(ledger.database, PROJECT_LOG).findings
    refused = [entry for entry in entries if entry.action == "refused"]
    if times >= len(TRIES) and not {"session_is_over", "hidden slide", "forbidden"} <= {row.subject for row in refused}:
        yield f"the log does not say what was refused: {sorted({row.subject for row in refused})}"
    if times > 100 and len(refused) > times / 2:
        yield f"{len(refused)} entries in the log after {times} attempts"
    text = " ".join(f"{entry.actor} {entry.subject} {entry.details}" for entry in entries)
    if PASSWORD in text or "guess" in text:
        yield "the log names a password"


if __name__ == "__main__":
    main(attack, times=200)
