"""A really started `gemslide app` and a real Chromium."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pathology_app.tiles.cache import SlideCache
from tests.pathology_app.small_project import make_project

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

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
GEMSLIDE = Path(sys.executable).with_name("gemslide")
ARTIFACTS = Path(__file__).parents[2] / "test-artifacts"


@dataclass(frozen=True)
class Server:
    """The app as its user sees it."""

    url: str
    cache: SlideCache


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    project = make_project(tmp_path_factory.mktemp("project"))
    command = [GEMSLIDE, "app", "--project", str(project.root), "--port", "0"]
    log = project.root / "server.log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout
        announcement = process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:\d+", announcement)
        assert match, f"the app did not say where it is: {announcement!r}\n{log.read_text()}"
        yield Server(match[0], SlideCache(project))
        process.terminate()
        assert process.wait(timeout=20) in (0, -15)
    errors = [line for line in log.read_text().splitlines() if "Traceback" in line or "ERROR" in line]
    assert not errors, log.read_text()


@pytest.fixture
def context(tmp_path: Path) -> Iterator[BrowserContext]:
    if not CHROMIUM.exists():
        pytest.skip(f"!! {CHROMIUM} is missing: run .ci/system-packages")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=CHROMIUM,
            args=FLAGS,
            viewport={"width": 1600, "height": 1000},
        )
        yield browser
        browser.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that must ask nobody but the app, and throw no error."""
    page = context.new_page()
    strangers: list[str] = []
    errors: list[str] = []
    local = re.compile(r"(https?|wss?)://127\.0\.0\.1:|data:|blob:|chrome")
    page.on("request", lambda request: None if local.match(request.url) else strangers.append(request.url))
    page.on("websocket", lambda socket: None if local.match(socket.url) else strangers.append(socket.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    ARTIFACTS.mkdir(exist_ok=True)
    assert not strangers, "the page asked other hosts than 127.0.0.1"
    assert not errors
