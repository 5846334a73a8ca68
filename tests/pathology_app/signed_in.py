"""People who sign in to a running app, as browsers do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import httpx

from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pathology_app.people.passwords import hash_password

PASSWORD = "correct horse battery"
PEOPLE: Mapping[str, tuple[str, ...]] = {
    "ada": ("admin",),
    "rita": ("reader",),
    "cora": ("coordinator",),
    "bob": ("reader",),
}
BOBS_SLIDES = ("X-*", "study:others")
_FORM = re.compile(r'name="form" value="([^"]+)"')


@cache
def hashed() -> str:
    """Hash of the password that all people share, because hashing is slow."""
    return hash_password(PASSWORD)


def add_people(root: Path) -> None:
    """Add four people; bob may not see the project's slides."""
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        for name, roles in PEOPLE.items():
            slides = BOBS_SLIDES if name == "bob" else None
            accounts.append(Account(name=name, roles=roles, password=hashed(), slides=slides))  # type: ignore[arg-type]


def browser(url: str) -> httpx.Client:
    """Client that keeps cookies and sends its origin."""
    return httpx.Client(base_url=url, headers={"Origin": url, "Accept": "text/html"}, timeout=30)


def sign_in(client: httpx.Client, name: str, password: str = PASSWORD, *, next: str = "/") -> httpx.Response:
    """Sign in as a browser does: get the form, then send it."""
    form = client.get("/sign-in", params={"next": next})
    token = _FORM.search(form.text)
    assert token, form.text
    form_data = {"form": token[1], "next": next, "name": name, "password": password}
    return client.post("/sign-in", data=form_data)


def cookie_of(client: httpx.Client) -> str:
    """Name and value of the session cookie, as in a request's header."""
    return next(f"{cookie.name}={cookie.value}" for cookie in client.cookies.jar if "_session_" in cookie.name)
