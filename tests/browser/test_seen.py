"""Areas and hotspots that count as seen: the same on every screen, only after a rest, and by a rule that is shown."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK
from tests.pathology_app.small_project import MODEL_ID, make_project
from tests.pathology_app.small_reading import SLIDES, make_reading_study
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATH = ((245, 430, 0.5, 12), (520, 330, 0.25, 18))
"""Stops: centre of the view in µm, µm per screen pixel, and per cent of the tissue seen after a second there."""
SCREENS = (((1366, 768), 1), ((2560, 1440), 1), ((1100, 760), 2))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedApp]:
    """App over three copies of one slide, in a project whose ledger records the areas seen."""
    small, root = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("study")
    make_reading_study(make_project(small), root, laid_out=False)
    with started_app(root, root / "server.log") as started:
        yield started


def test_a_path_covers_the_same_cells_and_hotspots_on_screens_of_unlike_size(browser: Browser, app: StartedApp) -> None:
    recorded = []
    for slide_id, ((width, height), ratio) in zip(SLIDES, SCREENS, strict=True):
        size: Any = {"width": width, "height": height}
        with browser.new_context(viewport=size, device_scale_factor=ratio) as context:
            page = context.new_page()
            for x_um, y_um, um_per_px, percent in PATH:
                go_to(page, f"{app.url}/?slide={slide_id}&model={MODEL_ID}&at={x_um},{y_um},{um_per_px}")
                page.get_by_text(
                    f"{percent} % of the tissue has been seen at 10× or more"
                ).wait_for()  # only a rest of a second counts
            page.goto("about:blank")  # leaving a page sends what it has recorded
            recorded.append(recorded_on(page, app, slide_id))
    assert recorded[0][0][3, 2] == recorded[0][0][3, 1] == 152, "20x"
    assert 4 < np.count_nonzero(recorded[0][0]) < 20
    assert recorded[0][1] == ["seen"]
    for finest, hotspots in recorded[1:]:
        np.testing.assert_array_equal(finest, recorded[0][0])
        assert hotspots == recorded[0][1]


def test_a_view_that_keeps_moving_shows_nothing_and_the_rule_is_stated(page: Page, app: StartedApp) -> None:
    go_to(page, f"{app.url}/?slide=S-001&model={MODEL_ID}&at=450,325,4")
    panel, hint = page.locator(".coverage"), page.locator(".hotspot-list .hint").first
    panel.get_by_text("within 300 pixels of the middle of the view").wait_for()
    panel.get_by_text("at 10× or more, for at least 1 s without moving").wait_for()
    before = hint.inner_text()
    page.keyboard.press("4")
    ends = time.monotonic() + 2.5
    while time.monotonic() < ends:  # never at rest for a second
        for key in ("ArrowRight", "ArrowLeft"):
            page.keyboard.press(key)
            page.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert hint.inner_text() == before
    page.get_by_text("2 seen").wait_for()
    page.keyboard.press("u")
    page.screenshot(path=ARTIFACTS / "seen.png")


def go_to(page: Page, url: str) -> None:
    page.goto(url)
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")


def recorded_on(page: Page, app: StartedApp, slide_id: str) -> tuple[Any, list[str]]:
    """Codes of the finest magnifications, and the states of hotspots, as the server has them."""
    page.goto(f"{app.url}/")
    ends = time.monotonic() + 20
    while True:
        stored = ask(page, f"/coverage/{slide_id}.json")
        judged = ask(page, f"/hotspots/{slide_id}/{MODEL_ID}.json")["judged"]
        finest = np.frombuffer(base64.b64decode(stored["finest"]), np.uint8).reshape(stored["rows"], stored["columns"])
        if (finest[2, 4] and judged) or time.monotonic() > ends:
            return finest, [state for *_, state in judged]


def ask(page: Page, url: str) -> Any:
    return page.evaluate("url => fetch(url).then((answer) => answer.json())", url)
