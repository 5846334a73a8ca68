"""A coordinator opens a study in a real browser, retries a slide with a reason, and finds both in its history."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.ledger.opening import actor_here, open_ledger
from pipeline.project import Project
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.test_viewer import HEADER_PX, ROW_PX, click_table
from tests.pathology_app.small_study import STUDY, make_study, take, worker
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

TICK_PX = 16
"""Offset of the check boxes in a table's first column."""


def click_until(page: Page, x: float, y: float, seen: Callable[[], bool]) -> None:
    """Click on a table until the page responds: a Streamlit table misses clicks while it is redrawn."""
    from playwright.sync_api import Error

    wait_for(page, "document.querySelectorAll('[data-testid=stDataFrame]').length === 1")
    for _ in range(6):
        try:
            page.get_by_test_id("stDataFrame").scroll_into_view_if_needed()
            click_table(page, x, y)
        except Error:  # it was redrawn in the meantime
            continue
        give_up = time.monotonic() + 15
        while time.monotonic() < give_up:
            if seen():
                return
            page.wait_for_timeout(100)
    raise AssertionError("no click was taken")


def test_a_failure_is_looked_at_and_retried_with_a_reason_that_stands_in_the_log(page: Page, tmp_path: Path) -> None:
    make_study(tmp_path)
    with started_app(tmp_path, tmp_path / "server.log") as app:
        page.goto(app.url)
        page.get_by_role("button", name=f"Study {STUDY}").click()
        page.get_by_text("5 of 7 (71.4%)").wait_for()
        page.screenshot(path=ARTIFACTS / "study.png")
        assert page.url == f"{app.url}/?study={STUDY}"

        page.get_by_role("radio", name="Without a result (3)").click()
        page.get_by_text("corrupt_tile: 2 slides ended as unreadable").wait_for()
        page.get_by_role("button", name="Show or retry the slides").first.click()
        page.get_by_role("button", name="Retry 2 slides").wait_for()
        page.get_by_text("internal_error").wait_for(state="detached")
        one = page.get_by_role("button", name="Retry 1 slide")
        click_until(page, TICK_PX, HEADER_PX + 1.5 * ROW_PX, one.is_visible)
        page.get_by_label("Your name").fill("Ada")
        page.get_by_label("Reason").fill("copied again")
        one.click()
        page.get_by_text("1 slide can continue").wait_for()
        page.screenshot(path=ARTIFACTS / "study-failures.png")

        page.get_by_role("radio", name="Overview").click()
        page.get_by_text("4 of 7").wait_for()
        page.get_by_label("Your name").wait_for(state="detached")
        page.get_by_role("searchbox", name="Slides").fill("003")
        page.get_by_text("1 slide. Click a slide").wait_for()
        page.get_by_role("link", name="S-003").click()
        entry = page.locator("table[aria-label='Log of the slide']").locator("tr", has_text="slide retried")
        entry.get_by_text("copied again").wait_for()
        assert entry.get_by_text(f"Ada (web app, {actor_here()})").is_visible()

        with open_ledger(Project(tmp_path)) as ledger:
            mine = worker(ledger)
            assert take(mine).slide_id == "S-003"
        page.locator("table[aria-label=Stages]").get_by_text("held").wait_for()  # without a click
        page.screenshot(path=ARTIFACTS / "study-slide.png")
        page.go_back()
        page.get_by_text("1 slide. Click a slide").wait_for()
    log_text = (tmp_path / "server.log").read_text()
    assert not [line for line in log_text.splitlines() if "Traceback" in line or "ERROR" in line], log_text
    assert not list(tmp_path.glob("gemslide.db-*")), "the ledger's connections were not closed when the app ended"
