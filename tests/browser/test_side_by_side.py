"""Slides side by side in a real browser: they move together, and are aligned by two points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import ARTIFACTS, Server, wait_for
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOOK = "window.__gemslideCompare"


def hook(page: Page, call: str) -> Any:
    return page.evaluate(f"{HOOK}.{call}")


def settled(page: Page) -> None:
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")


def place(page: Page, pane: int, x_px0: float, y_px0: float) -> tuple[float, float]:
    """Position of a level-0 pixel on the page."""
    box = page.locator(".pane .marks").nth(pane).bounding_box()
    at = hook(page, f"toScreen({pane}, {x_px0}, {y_px0})")
    assert box
    return box["x"] + at["x"], box["y"] + at["y"]


def on_pane(page: Page, pane: int, x_px0: float, y_px0: float) -> tuple[float, float]:
    at = hook(page, f"toScreen({pane}, {x_px0}, {y_px0})")
    return at["x"], at["y"]


def test_views_move_together_until_they_are_told_not_to(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?slide={SLIDE_ID}&model={MODEL_ID}")
    page.get_by_role("button", name="Compare").click()
    settled(page)
    page.keyboard.press("5")
    settled(page)
    assert on_pane(page, 1, 900, 650) == pytest.approx(on_pane(page, 0, 900, 650), abs=1)

    start = place(page, 1, 900, 650)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(start[0] - 150, start[1] - 90, steps=6)
    page.mouse.up()
    settled(page)
    wait_for(page, f"Math.abs({HOOK}.toScreen(0, 900, 650).x - {HOOK}.toScreen(1, 900, 650).x) < 1.5")

    page.mouse.move(*place(page, 1, 700, 500))
    pointer = hook(page, "pointer(0)")
    assert (pointer["x"], pointer["y"]) == pytest.approx((700, 500), abs=2)
    before = on_pane(page, 0, 900, 650)
    page.get_by_label("Link views").uncheck()
    page.mouse.move(*place(page, 1, 700, 500))
    page.mouse.wheel(0, -300)
    wait_for(page, f"Math.abs({HOOK}.toScreen(1, 900, 650).x - {before[0]}) > 20")
    settled(page)
    assert on_pane(page, 0, 900, 650) == pytest.approx(before, abs=0.5)
    page.screenshot(path=ARTIFACTS / "compare.png")
    assert f"compare={SLIDE_ID}" in page.url


def test_two_places_in_every_view_bring_slides_together_and_the_link_keeps_it(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?compare={SLIDE_ID},{SLIDE_ID}~")
    settled(page)
    page.keyboard.press("g")
    page.get_by_text("View 1: click the first point").wait_for()
    for corner in ((400, 400), (1200, 400)):
        page.mouse.click(*place(page, 0, *corner))
    for corner in ((1000, 300), (1000, 1100)):  # as if it were rotated by 90 degrees
        page.mouse.click(*place(page, 1, *corner))
    page.get_by_text("Aligned; the points still differ").wait_for()
    settled(page)
    assert hook(page, "degrees(1)") == pytest.approx(270, abs=1)
    assert on_pane(page, 1, 1000, 700) == pytest.approx(on_pane(page, 0, 800, 400), abs=4)
    wait_for(page, "location.search.includes('together=')")
    page.screenshot(path=ARTIFACTS / "compare-together.png")

    page.reload()
    settled(page)
    assert hook(page, "degrees(1)") == pytest.approx(270, abs=1)
    assert on_pane(page, 1, 1000, 700) == pytest.approx(on_pane(page, 0, 800, 400), abs=4)
