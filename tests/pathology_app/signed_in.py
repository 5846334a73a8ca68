"""People who sign in to a really started app, as browsers do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import httpx

from pathology_app.access.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pathology_app.access.passwords import hash_password

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
    """The hash of everybody's password: one takes long enough."""
    return hash_password(PASSWORD)


def add_people(root: Path) -> None:
    """The four, of whom bob may not see the project's slides."""
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        for name, roles in PEOPLE.items():
            slides = BOBS_SLIDES if name == "bob" else None
            accounts.append(Account(name=name, roles=roles, password=hashed(), slides=slides))  # type: ignore[arg-type]


def browser(url: str) -> httpx.Client:
    """Keeps cookies, and says whose page asks."""
    return httpx.Client(base_url=url, headers={"Origin": url, "Accept": "text/html"}, timeout=30)


def sign_in(client: httpx.Client, name: str, password: str = PASSWORD, *, next: str = "/") -> httpx.Response:
    """What a browser does: get the form, send it."""
    form = client.get("/sign-in", params={"next": next})
    token = _FORM.search(form.text)
    assert token, form.text
    said = {"form": token[1], "next": next, "name": name, "password": password}
    return client.post("/sign-in", data=said)


def cookie_of(client: httpx.Client) -> str:
    """Name and value of the session, as a request's header has them."""
    return next(f"{each.name}={each.value}" for each in client.cookies.jar if "_session_" in each.name)
