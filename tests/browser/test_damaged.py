"""Damaged areas of a slide's file are hatched to the pixel for every viewer, and announced above the slide."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser.conftest import ARTIFACTS, wait_for
from tests.pathology_app.small_project import (
    HEIGHT_PX0,
    MODEL_ID,
    SLIDE_ID,
    WIDTH_PX0,
    flip_a_bit,
    make_damaged_project,
    make_project,
)
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOOK = "window.__gemslide"


def alpha(page: Page, x_px0: int, y_px0: int) -> int:
    colour: list[Any] = page.evaluate(f"{HOOK}.overlayColour({x_px0}, {y_px0})")
    return int(colour[3])


def test_damaged_tiles_are_hatched_to_the_pixel_whether_or_not_predictions_are_shown(
    page: Page, tmp_path: Path
) -> None:
    project = make_damaged_project(tmp_path)
    with started_app(project.root, tmp_path / "server.log") as app:
        page.goto(f"{app.url}/?slide={SLIDE_ID}&model={MODEL_ID}")
        wait_for(page, f"{HOOK} && {HOOK}.isSettled() && {HOOK}.hasOverlay() && {HOOK}.hasDamaged()")
        page.keyboard.press("o")  # without the prediction's colours
        wait_for(page, f"{HOOK}.overlayColour(480, 864)[3] === 0")

        assert all(alpha(page, x, y) > 30 for x, y in ((260, 260), (500, 500), (764, 764), (1796, 1296)))
        assert all(alpha(page, x, y) == 0 for x, y in ((250, 300), (400, 520), (520, 775), (900, 300), (1780, 1290)))
        assert alpha(page, WIDTH_PX0 + 8, HEIGHT_PX0 - 8) == 0  # the last tile reaches beyond the slide
        assert page.get_by_text("4 of 48 tiles are damaged in the slide's file").is_visible()


def test_a_chunk_of_the_store_that_went_bad_is_hatched_in_grey_and_no_coarser_level_shows_in_its_place(
    page: Page, tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    flip_a_bit(project, row=2, column=3)
    with started_app(project.root, tmp_path / "server.log") as app:
        page.goto(f"{app.url}/?slide={SLIDE_ID}")
        wait_for(page, f"{HOOK} && {HOOK}.isSettled()")

        bad = [slide_colour(page, x, y) for x, y in ((772, 516), (900, 640), (1018, 762))]
        good = [slide_colour(page, x, y) for x, y in ((760, 516), (772, 504), (1030, 762), (1018, 774))]
        assert all(4 <= green - red <= 7 and 10 <= blue - red <= 18 for red, green, blue in bad), bad
        assert not any(4 <= green - red <= 7 and 10 <= blue - red <= 18 for red, green, blue in good), good
        assert page.get_by_text("Grey hatching: damaged in the slide's store;").is_visible()
        page.screenshot(path=ARTIFACTS / "damaged-store.png")


def slide_colour(page: Page, x_px0: int, y_px0: int) -> list[int]:
    colour: list[int] = page.evaluate(f"{HOOK}.slideColour({x_px0}, {y_px0})")
    return colour[:3]
