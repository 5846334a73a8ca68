"""A running `gemslide app` and a real Chromium."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pathology_app.slides.cache import SlideCache
from tests.pathology_app.small_project import make_project
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ARTIFACTS = Path(__file__).parents[2] / "test-artifacts"


_WAIT = """(seconds) => new Promise((done, fail) => {
    const ends = Date.now() + 1000 * seconds;
    const look = () => (%s) ? done(true) : Date.now() > ends ? fail(new Error("waited in vain")) : setTimeout(look, 30);
    look();
})"""


def wait_for(page: Page, condition: str, *, seconds: float = 30) -> None:
    """Wait until a JavaScript expression holds. Playwright's own way needs `eval`, which the app's policy forbids.

    A tapped link can take the page away while the old one is still waiting: the wait then goes on in the new one.
    """
    from playwright.sync_api import Error

    ends = time.monotonic() + seconds
    while True:
        try:
            page.evaluate(_WAIT % condition, ends - time.monotonic())
        except Error as error:
            if "Execution context was destroyed" not in error.message or time.monotonic() > ends:
                raise
        else:
            return


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put the tests of this folder in one xdist group: no other event loop may run beside Playwright."""
    if Path(__file__).parent in item.path.parents:
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.xdist_group("browser"))


@contextmanager
def chromium(playwright: Playwright, *flags: str) -> Iterator[Browser]:
    """Launch Chromium, or skip the test if it is not installed."""
    if not CHROMIUM.exists():
        pytest.skip(f"!! {CHROMIUM} is missing: run .ci/system-packages")
    with playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags]) as browser:
        yield browser


@dataclass(frozen=True)
class Server:
    """The running app as its user sees it."""

    url: str
    cache: SlideCache


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    project = make_project(tmp_path_factory.mktemp("project"))
    log = project.root / "server.log"
    with started_app(project.root, log) as app:
        yield Server(app.url, SlideCache(project))
    assert app.process.returncode in (0, -15)
    errors = [line for line in log.read_text().splitlines() if "Traceback" in line or "ERROR" in line]
    assert not errors, log.read_text()


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """One Chromium for these tests and no others."""
    with chromium(playwright) as browser:
        yield browser


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Fresh browser context: no cookies or other state from another test."""
    with browser.new_context(viewport={"width": 1600, "height": 1000}) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Page that must contact only the app, attempt nothing that its policy forbids, and throw no error."""
    page = context.new_page()
    strangers: list[str] = []
    errors: list[str] = []
    page.on(
        "console", lambda message: errors.append(message.text) if "Content Security Policy" in message.text else None
    )
    local = re.compile(r"(https?|wss?)://127\.0\.0\.1:|data:|blob:|chrome")
    page.on("request", lambda request: None if local.match(request.url) else strangers.append(request.url))
    page.on("websocket", lambda socket: None if local.match(socket.url) else strangers.append(socket.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    ARTIFACTS.mkdir(exist_ok=True)
    assert not strangers, "the page asked other hosts than 127.0.0.1"
    assert not errors, errors
