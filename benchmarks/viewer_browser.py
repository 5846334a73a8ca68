"""A browser as the viewer's benchmarks use it: Chromium at 1920 × 1080, without GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.browser.conftest import CHROMIUM, FLAGS
from tests.pathology_app.started_app import StartedApp

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

SCREEN: ViewportSize = {"width": 1920, "height": 1080}
SETTLED = """async (event) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const start = performance.now();
    if (event) document.dispatchEvent(new KeyboardEvent("keydown", { ...event, bubbles: true }));
    do { await frame(); await frame(); } while (!window.__gemslide?.isSettled());
    return performance.now() - start;
}"""


@contextmanager
def new_page() -> Iterator[tuple[Browser, Page]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport=SCREEN)
        page.set_default_timeout(60_000)
        yield browser, page
        browser.close()


@contextmanager
def opened(app: StartedApp, query: str = "slide=slide") -> Iterator[Page]:
    with new_page() as (_, page):
        page.goto(f"{app.url}/?{query}")
        page.wait_for_selector(".gemslide-viewer")
        page.evaluate(SETTLED)
        yield page
