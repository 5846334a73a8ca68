"""The slides of a case in a real browser: from one to the next by keys, back to the list, and side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK
from tests.pathology_app.small_case import make_cases
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

COMPARE = "window.__gemslideCompare"
NAMED = """(document.querySelector(".st-key-bar h4")?.checkVisibility({visibilityProperty: true})
    ? document.querySelector(".st-key-bar h4").textContent : null)"""
"""The slide that the page names; null while it names none."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("cases")
    project = make_cases(root)
    (project.store_path("D-1") / "zarr.json").write_text("{}")
    with started_app(root, root / "server.log") as app:
        yield app.url


def opened(page: Page, slide_id: str) -> None:
    wait_for(page, f"{HOOK} && {HOOK}.slideId() === '{slide_id}' && {HOOK}.isSettled()")
    wait_for(page, "!document.documentElement.classList.contains('gs-switching')")


def test_the_next_slides_of_a_case_are_one_key_away_and_the_list_is_another(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 1366, "height": 768})
    page.goto(f"{url}/?find=c-&group=case")
    page.get_by_text("P-7").click()
    page.get_by_role("link", name="C-2", exact=True).click()
    opened(page, "C-2")
    page.get_by_text("Case P-7").wait_for()
    wait_for(page, f"{HOOK}.isReadAhead()")
    wait_for(page, "performance.getEntriesByType('resource').some(({ name }) => /ahead.C-10.[0-9]/.test(name))")
    page.keyboard.press(".")
    wait_for(page, f"{HOOK}.slideId() === 'C-10' && {HOOK}.isSettled()")
    assert page.evaluate(NAMED) in (None, "C-10"), "the name of the slide that was left"
    opened(page, "C-10")
    wait_for(page, f"{NAMED} === 'C-10' && {HOOK}.hasOverlay()")
    assert "find=c-" in page.url
    assert "slide=C-10" in page.url
    page.screenshot(path=ARTIFACTS / "case.png")
    page.get_by_role("link", name="C-1 A10, HE").click()
    opened(page, "C-1")
    page.keyboard.press(".")
    opened(page, "B-1")
    page.keyboard.press(".")
    page.get_by_text("This is the last slide of the case.").wait_for()
    page.keyboard.press(",")
    opened(page, "C-1")
    page.go_back()
    opened(page, "B-1")
    wait_for(page, f"{NAMED} === 'B-1'")
    page.keyboard.press(",")
    opened(page, "C-1")
    page.keyboard.press("Backspace")
    wait_for(page, "document.activeElement?.textContent === 'C-1'")
    assert "find=c-" in page.url
    assert "slide=" not in page.url


def test_backspace_with_a_tool_in_hand_takes_back_a_point_and_never_leaves_the_slide(page: Page, url: str) -> None:
    page.goto(f"{url}/?slide=C-1")
    opened(page, "C-1")
    wait_for(page, f"{HOOK}.annotations.isSettled()")
    page.keyboard.press("m")
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Backspace")
    assert page.evaluate(f"{HOOK}.inHand()") == "ruler"
    assert "slide=C-1" in page.url


def test_a_slide_that_cannot_be_opened_is_reported_by_its_page(page: Page, url: str) -> None:
    page.goto(f"{url}/?slide=S-001")
    opened(page, "S-001")
    page.keyboard.press(",")
    page.get_by_text("D-1").first.wait_for()
    page.get_by_role("alert").wait_for()
    assert "slide=D-1" in page.url


def test_a_case_is_compared_block_by_block_with_every_tool_and_slides_are_added_by_thumbnail(
    page: Page, url: str
) -> None:
    page.set_viewport_size({"width": 1366, "height": 768})
    page.goto(f"{url}/?slide=C-2")
    opened(page, "C-2")
    page.get_by_role("button", name="Compare").click()
    settled = f"{COMPARE} && {COMPARE}.isSettled()"
    wait_for(page, settled)
    wait_for(page, "decodeURIComponent(location.search).includes('compare=C-2,C-10')")
    page.keyboard.press("s")
    field = page.get_by_label("Find a slide")
    page.get_by_role("button", name="C-10 A2, Ki-67 · same block").wait_for()
    page.screenshot(path=ARTIFACTS / "picker.png")
    field.fill("d-1")
    page.get_by_role("button", name="D-1").click()
    page.get_by_role("alert").wait_for()
    assert page.locator(".pane").count() == 2, "a slide that cannot be read takes no place"
    page.keyboard.press("s")
    field.fill("a10")
    page.keyboard.press("Enter")  # before the list has been searched: it still begins with C-10
    wait_for(page, "decodeURIComponent(location.search).includes('compare=C-2,C-10,C-1')")
    page.locator(".pane").nth(2).wait_for()
    wait_for(page, settled)

    page.keyboard.press("5")
    page.keyboard.press("v")
    wait_for(page, settled)
    for pane in (1, 2):
        page.keyboard.press("w")
        wait_for(page, f"{COMPARE}.active() === {pane} && {COMPARE}.mayAnnotate({pane})")
        page.keyboard.press("m")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    wait_for(page, f"{COMPARE}.kinds(2).includes('count') && {COMPARE}.kinds(2).includes('mark')")
    assert page.evaluate(f"{COMPARE}.kinds(1)") == []
    page.screenshot(path=ARTIFACTS / "compare-tools.png")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Remove C-10 from these views").click()
    wait_for(page, "!location.search.includes('C-10')")
    page.locator(".pane").nth(2).wait_for(state="detached")
    wait_for(page, f"{settled} && {COMPARE}.kinds(1).includes('count')")
