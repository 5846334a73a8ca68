"""Two people count in one area at once, each in a browser of their own; what one does, the other sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pipeline.ledger import find_ledger
from pipeline.project import Project
from pipeline.review import annotations_of
from tests.browser.conftest import wait_for
from tests.browser.on_slide import HOOK, click
from tests.browser.signing_in import fill_and_sign_in
from tests.pathology_app.signed_in import hashed
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PEOPLE = ("ada", "bea")
SAVED = f"{HOOK}.annotations.isSaved()"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("two")
    make_project(root)
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts.extend(Account(name=name, roles=("reviewer",), password=hashed()) for name in PEOPLE)
    return root


@pytest.fixture(scope="module")
def app(root: Path) -> Iterator[StartedApp]:
    with started_app(root, root / "server.log") as app:
        yield app


@pytest.fixture
def ada(browser: Browser, app: StartedApp) -> Iterator[Page]:
    yield from signed_in(browser, app, "ada")


@pytest.fixture
def bea(browser: Browser, app: StartedApp) -> Iterator[Page]:
    yield from signed_in(browser, app, "bea")


def signed_in(browser: Browser, app: StartedApp, name: str) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1366, "height": 768}) as context:
        page = context.new_page()
        page.goto(f"{app.url}/?slide={SLIDE_ID}")
        fill_and_sign_in(page, name)
        wait_for(page, f"{HOOK} && {HOOK}.isSettled() && {HOOK}.annotations.isSettled()")
        yield page


def test_two_people_count_in_one_circle_and_nothing_of_either_is_lost(ada: Page, bea: Page, root: Path) -> None:
    ada.keyboard.press("c")
    click(ada, 900, 650)  # the circle
    click(ada, 800, 600)
    wait_for(ada, SAVED)

    wait_for(bea, f"{HOOK}.annotations.shown().some(({{ kind }}) => kind === 'count')")
    bea.keyboard.press("c")
    bea.locator("summary", has_text="Counts").wait_for()
    bea.get_by_role("button", name="Count 1: positive 1").click()
    for index in range(4):
        page = ada if index % 2 else bea
        page.keyboard.press("2" if page is bea else "1")
        click(page, 850 + 30 * index, 700)
    for page in (ada, bea):
        wait_for(page, f"{SAVED} && {HOOK}.counted() === 5")
        page.get_by_text("60.0 %").first.wait_for()
    bea.keyboard.press("Backspace")
    for page in (ada, bea):
        wait_for(page, f"{SAVED} && {HOOK}.counted() === 4")
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger:
        marks = annotations_of(ledger, SLIDE_ID, kinds=("mark",))
        assert sorted((mark.author.split()[0], mark.class_name) for mark in marks) == [
            ("ada", "positive"),
            ("ada", "positive"),
            ("ada", "positive"),
            ("bea", "negative"),
        ]
        assert len({mark.parent_id for mark in marks}) == 1
