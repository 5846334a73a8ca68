"""Signing in at an OpenID Connect provider, by `st.login`, in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from joserfc.jwk import RSAKey

from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pathology_app.people.person import Role
from pathology_app.people.provider import PROVIDER_VARIABLE
from pipeline.ledger import LogFilter, find_ledger, project_history
from pipeline.project import Project
from tests.free_ports import free_ports
from tests.pathology_app.oidc_provider import Provider, secrets_toml, started_provider
from tests.pathology_app.small_project import make_project
from tests.pathology_app.started_app import GEMSLIDE, StartedApp, started_app
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with started_provider() as provider:
        yield provider


@pytest.fixture(autouse=True)
def honest(provider: Provider) -> None:
    """Start each test with a provider that gives ada's true claims."""
    provider.claims = {"sub": "1", "email": "Ada@lab.example"}
    provider.signs_with = provider.state = None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("provider")
    make_project(root)
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts.append(Account(name="ada", roles=(Role.ADMIN,), email="ada@lab.example"))
        accounts.append(Account(name="bob", roles=(Role.READER,), subject="subject-of-bob"))
    return root


@pytest.fixture(scope="module")
def app(root: Path, provider: Provider) -> Iterator[StartedApp]:
    (port,) = free_ports(1)  # the provider needs the app's address
    secrets = root / "secrets.toml"
    secrets.touch(mode=0o600)
    secrets.write_text(secrets_toml(provider, f"http://127.0.0.1:{port}"))
    command = [GEMSLIDE, "app", "--project", root, "--port", str(port)]
    log = root / "server.log"
    with started_app(root, log, command=command, environment={PROVIDER_VARIABLE: str(secrets)}) as app:
        yield app
    assert "provider-secret" not in log.read_text()


def go_to_the_provider(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/?slide=S-001")
    page.get_by_role("link", name="Sign in with your institution").click()


def refused(root: Path) -> list[tuple[str, str]]:
    """Refused people and the reasons, newest first: none until the app, which logs without waiting, makes a ledger."""
    opened = find_ledger(Project(root))
    if opened is None:
        return []
    with opened as ledger:
        rows = project_history(ledger, LogFilter(), newest=50)
    return [(row.actor, row.subject) for row in rows if row.action == "refused"]


def test_a_person_signs_in_at_the_provider_and_comes_back_to_the_page_asked_for(
    page: Page, app: StartedApp, root: Path
) -> None:
    go_to_the_provider(page, app)
    page.get_by_role("link", name="Sign out").wait_for()
    page.wait_for_url(re.compile(r"/\?slide=S-001(&at=.*)?$"))  # the viewer adds the place to the page's address
    page.locator("canvas").first.wait_for()
    assert page.get_by_text("ada", exact=False).first.is_visible()
    names = {cookie["name"] for cookie in page.context.cookies()}
    assert not {name for name in names if name.startswith("_streamlit_user")}
    assert any("_session_" in name for name in names)
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger:
        signed_in = project_history(ledger, LogFilter(subject="person ada"), newest=1)
    assert [(row.actor, row.details) for row in signed_in] == [("ada (web app)", '{"by":"provider"}')]


@pytest.mark.parametrize(
    ("claims", "who"),
    [
        ({"sub": "7", "email": "eve@lab.example"}, "eve@lab.example"),
        ({"sub": "8", "email": "ada@lab.example", "email_verified": False}, "ada@lab.example"),
        ({"sub": "9", "email": "subject-of-bob"}, "subject-of-bob"),
    ],
)
def test_an_unknown_person_is_told_so_and_not_let_in(
    page: Page, app: StartedApp, provider: Provider, root: Path, claims: dict[str, object], who: str
) -> None:
    provider.claims = claims
    go_to_the_provider(page, app)
    page.get_by_text("is not known here").wait_for()
    assert not [cookie for cookie in page.context.cookies() if "_session_" in cookie["name"]]
    page.goto(app.url)
    assert page.get_by_role("heading", name="Sign in").is_visible()
    wait_until(lambda: (f"{who} (provider)", "unknown person") in refused(root), seconds=60)


def test_the_provider_s_own_name_for_somebody_counts_more_than_an_address(
    page: Page, app: StartedApp, provider: Provider
) -> None:
    provider.claims = {"sub": "subject-of-bob", "email": "ada@lab.example"}
    go_to_the_provider(page, app)
    page.get_by_role("link", name="Sign out").wait_for()
    assert page.get_by_text("bob", exact=False).first.is_visible()


@pytest.mark.parametrize("forged", ["key", "nonce", "expired", "state", "old"])
def test_what_is_forged_or_expired_lets_nobody_in(page: Page, app: StartedApp, provider: Provider, forged: str) -> None:
    now = int(time.time())
    more: dict[str, dict[str, object]] = {
        "nonce": {"nonce": "another"},
        "expired": {"exp": now - 3600, "iat": now - 7200},
        "old": {"iat": now - 1800},
    }
    provider.claims |= more.get(forged, {})
    provider.signs_with = RSAKey.generate_key(2048) if forged == "key" else None
    provider.state = "guessed" if forged == "state" else None
    go_to_the_provider(page, app)
    page.locator('[data-testid="stAlert"]').wait_for()
    assert not [cookie for cookie in page.context.cookies() if "_session_" in cookie["name"]]
    page.goto(f"{app.url}/?slide=S-001")
    assert page.get_by_role("heading", name="Sign in").is_visible()


def test_what_the_provider_said_is_good_once(page: Page, app: StartedApp) -> None:
    """Refuse a copy of Streamlit's cookie, which is valid for a month."""
    kept: list[dict[str, str]] = []
    page.on("request", lambda request: kept.extend(_copied(request.all_headers(), app)) if not kept else None)
    go_to_the_provider(page, app)
    page.get_by_role("link", name="Sign out").wait_for()
    assert kept
    page.context.clear_cookies()
    page.context.add_cookies(kept)  # type: ignore[arg-type]
    page.goto(f"{app.url}/?sign-in=done")
    page.locator('[data-testid="stAlert"]').wait_for()
    assert page.get_by_text("Sign in again").first.is_visible()


def _copied(headers: dict[str, str], app: StartedApp) -> list[dict[str, str]]:
    pairs = [cookie.partition("=") for cookie in headers.get("cookie", "").split("; ")]
    return [
        {"name": name, "value": value, "url": app.url} for name, _, value in pairs if name.startswith("_streamlit_user")
    ]


def test_streamlit_s_own_ways_in_and_out_lead_nowhere_else(app: StartedApp) -> None:
    import httpx

    assert httpx.get(f"{app.url}/auth/logout").status_code == 404
    answer = httpx.get(f"{app.url}/auth/login?provider=x")
    assert answer.headers["location"] == "/"
    answer = httpx.get(f"{app.url}/oauth2callback?state=x&code=y")
    assert answer.headers["location"] == "/?sign-in=done"
    assert httpx.get(f"{app.url}/_stcore/host-config").status_code == 200
    assert httpx.get(f"{app.url}/tiles/S-001/0/0_0").status_code == 401
