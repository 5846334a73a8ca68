"""Attention over a slide, and what a slide-level model says of its patient, in a real browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.project import Project
from tests.browser.conftest import ARTIFACTS, Server, wait_for
from tests.browser.on_slide import HOOK, click, on_screen
from tests.pathology_app.small_attention import PEAK_XY_PX0, SLIDE_MODEL, write_small_attention
from tests.pathology_app.small_project import SLIDE_ID
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

LABEL = f"{SLIDE_MODEL}: attention"
BESIDE_PX0 = (PEAK_XY_PX0[0] - 64, PEAK_XY_PX0[1])
"""A tile beside the peak."""


@pytest.fixture(scope="module")
def app_url(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """App with the small slide and a slide-level model's results."""
    project = Project(tmp_path_factory.mktemp("attention"))
    shutil.copytree(server.cache.project.root, project.root, dirs_exist_ok=True)
    write_small_attention(project)
    with started_app(project.root, project.root / "server.log") as app:
        yield app.url


def test_attention_is_shown_on_request_in_multiples_of_the_average(page: Page, app_url: str) -> None:
    page.goto(f"{app_url}/?slide={SLIDE_ID}")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled() && {HOOK}.hasOverlay()")
    page.get_by_text("Patient P-17, 1 slide, 391 tiles").wait_for()
    answers = page.get_by_role("table", name=f"Predictions of {SLIDE_MODEL}")
    assert "higher risk than half of the training patients" in answers.inner_text()
    assert page.locator(".answers").get_by_text("Research use only. Not for diagnosis.").count() == 1

    assert page.get_by_text("No outline of disease").count() == 0, "no attention is shown yet"
    page.locator(".layers summary", has_text="Attention").click()
    page.get_by_label(f"Show {LABEL}").check()
    page.get_by_label("Show P(positive)").uncheck()
    wait_for(page, f"{HOOK}.hasOverlay()")

    legend = page.locator(".legend")
    assert (
        "share of a tile in the result, 1 = average. No outline of disease. Research use only." in legend.inner_text()
    )
    assert [tick.inner_text() for tick in legend.locator(".tick").all()] == ["0", "3.1", "≥ 6.3"]
    readout = page.locator(".readout")
    page.mouse.move(*on_screen(page, *BESIDE_PX0))
    readout.get_by_text(re.compile(rf"{LABEL} 6\.[23] × average")).wait_for()
    page.mouse.move(*on_screen(page, *PEAK_XY_PX0))
    readout.get_by_text(f"{LABEL} ≥ 6.3 × average").wait_for()
    peak, ground = (page.evaluate(f"{HOOK}.overlayColour({x}, {y})") for x, y in (PEAK_XY_PX0, (900, 700)))
    assert peak[0] > peak[2] + 60, "yellow"
    assert ground[3] > 0
    assert ground[0] < ground[2], "blue"
    click(page, *PEAK_XY_PX0)
    page.get_by_role("table", name="At the last click").get_by_text("14.5 × average").wait_for()
    page.screenshot(path=ARTIFACTS / "attention.png")

    threshold = page.get_by_role("slider", name=f"Threshold of {LABEL}")
    threshold.fill("0.5")
    assert threshold.get_attribute("aria-valuetext") == "3.1 ×"
    assert page.evaluate(f"{HOOK}.overlayColour(900, 700)")[3] == 0
    wait_for(page, f"location.search.includes('layers=attention/{SLIDE_MODEL}:0.50,0.50,Cividis')")
    page.reload()
    wait_for(page, f"{HOOK} && {HOOK}.isSettled() && {HOOK}.hasOverlay()")
    page.get_by_text("No outline of disease").wait_for()
