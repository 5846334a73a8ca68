"""How long it takes until a slide is on the screen: from the list, from the slide before it, in an empty browser."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.viewer_browser import new_page, opened
from benchmarks.viewer_clients import milliseconds
from pipeline.project import Project
from tests.browser.conftest import wait_for
from tests.pathology_app.started_app import StartedApp

if TYPE_CHECKING:
    from playwright.sync_api import Page

_WATCH = """async ([slideId, key]) => {
    const start = performance.now();
    if (key) document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const at = (isDone) => new Promise((done) => {
        const look = () => isDone() ? done(performance.now() - start) : setTimeout(look, 4);
        look();
    });
    const viewer = () => window.__gemslide?.slideId() === slideId ? window.__gemslide : null;
    const image = await at(() => viewer()?.isImageComplete());
    return [image, await at(() => viewer()?.isSettled() && viewer().hasOverlay())];
}"""


def _figures(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Times until the image is complete, and until the page is drawn with its prediction."""
    return {**milliseconds([image for image, _ in pairs]), "with_page": milliseconds([page for _, page in pairs])}


def switch(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure a switch by the link of another slide within the app, as from the worklist."""
    del project
    times = []
    with new_page() as (_, page):
        for index in range(max(6, moves // 4)):
            page.goto(f"{app.url}/")
            name = ("slide", "other")[index % 2]
            link = page.get_by_role("link", name=name, exact=True)
            link.wait_for()
            page.wait_for_timeout(500)
            times.append(_from_here(page, name, link.click))
    return _figures(times)


def following(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure the key for the next and the previous slide of a case."""
    del project
    times = []
    with opened(app) as page:
        page.get_by_text("Case bench").wait_for()
        for index in range(max(6, moves // 4)):
            wait_for(page, "window.__gemslide.isReadAhead()")
            page.wait_for_timeout(1500)  # a viewer looks at a slide before moving on
            name, key = (("other", ","), ("slide", "."))[index % 2]
            image, drawn = page.evaluate(_WATCH, [name, key])
            times.append((image, drawn))
    return _figures(times)


def first_page(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure the first page in a browser without a cache."""
    del project
    times = []
    for _ in range(max(5, moves // 8)):
        with new_page() as (_, page):
            times.append(
                _from_here(page, "slide", lambda page=page: page.goto(f"{app.url}/?slide=slide", wait_until="commit"))
            )
    return _figures(times)


def _from_here(page: Page, name: str, act: Any) -> tuple[float, float]:
    start = time.perf_counter()
    act()
    begun = time.perf_counter() - start
    image, drawn = page.evaluate(_WATCH, [name, ""])
    return 1000 * begun + image, 1000 * begun + drawn
