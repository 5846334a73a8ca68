"""Alignments that the project keeps, in the side-by-side view of a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.project import Project
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.pathology_app.started_app import started_app
from tests.pipeline.registration.tissue_pictures import ingested, stained, tissue, transform, warped

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOOK = "window.__gemslideCompare"
TRUTH = transform(40.0, is_mirrored=True)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    project = Project(tmp_path_factory.mktemp("aligned"))
    ingested(project, "HE-1", stained(tissue(21)))
    ingested(project, "CD3-1", warped(stained(tissue(21)), TRUTH))
    with started_app(project.root, project.root / "server.log") as app:
        yield app.url


def at(page: Page, pane: int, x_px0: float, y_px0: float) -> Any:
    return page.evaluate(f"{HOOK}.toScreen({pane}, {x_px0}, {y_px0})")


def settled(page: Page) -> None:
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")


def test_slides_are_aligned_by_their_tissue_and_stay_so_for_the_next_visit(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 1366, "height": 768})
    page.goto(f"{url}/?compare=HE-1,CD3-1")
    settled(page)
    page.get_by_role("button", name="Align by tissue").click()
    page.get_by_text("Aligned and saved: error").wait_for(timeout=90_000)
    settled(page)
    page.screenshot(path=ARTIFACTS / "aligned-by-tissue.png")
    page.goto(f"{url}/?compare=HE-1,CD3-1")
    page.get_by_title("mirrored left to right, turned by 40.0° clockwise").wait_for()
    settled(page)
    for x_px0, y_px0 in ((300, 200), (420, 330)):
        moved = TRUTH.moved([(x_px0, y_px0)])[0]
        first, second = at(page, 0, x_px0, y_px0), at(page, 1, *moved)
        assert (second["x"], second["y"]) == pytest.approx((first["x"], first["y"]), abs=2)
    assert page.get_by_text("Research use only: check that the views show the same places.").is_visible()

    page.get_by_role("button", name="Remove saved").click()
    page.get_by_text("The saved alignment was removed").wait_for()
    page.goto(f"{url}/?compare=HE-1,CD3-1")
    settled(page)
    assert not page.get_by_title("mirrored left to right").is_visible()


def test_two_clicked_places_are_saved_with_their_error(page: Page, url: str) -> None:
    page.goto(f"{url}/?compare=HE-1,CD3-1")
    settled(page)
    page.keyboard.press("g")
    page.get_by_text("View 1: click the first point").wait_for()
    for pane, places in enumerate((((200, 200), (500, 300)), ((250, 220), (549, 323)))):
        box = page.locator(".pane .marks").nth(pane).bounding_box()
        assert box
        for place in places:
            on_pane = at(page, pane, *place)
            page.mouse.click(box["x"] + on_pane["x"], box["y"] + on_pane["y"])
    page.get_by_text("Aligned and saved: error").wait_for()
    page.goto(f"{url}/?compare=CD3-1,HE-1")
    page.get_by_text("from 2 points").wait_for()
    page.screenshot(path=ARTIFACTS / "aligned-by-points.png")
