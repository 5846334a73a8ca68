"""A slide's colours, brightness, contrast and gamma, changed in a real browser, and never silently."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

from pipeline.box import Box
from pipeline.project import Project
from pipeline.store.format.metadata import read_json, write_json
from pipeline.store.view.colour import ToSrgb
from pipeline.units import RESEARCH_USE
from tests.browser.conftest import ARTIFACTS, Server, wait_for
from tests.pathology_app.profiles import give_profile, table_profile
from tests.pathology_app.small_project import HEIGHT_PX0, SLIDE_ID, WIDTH_PX0, flip_a_bit, slide_pixels
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

HOOK = "window.__gemslide"
PLACES = [(x, y) for x in range(600, 1300, 50) for y in range(480, 860, 40)]
"""Level-0 pixels of tissue, all visible on the screen."""
AT = "at=475,335,0.5"
"""View at one screen pixel per slide pixel."""
HALF = "at=475,335,1"
"""View at two slide pixels per screen pixel in each direction."""
USELESS = "useless"


@pytest.fixture(scope="module")
def app_url(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """App with the small slide with a scanner's profile and a damaged chunk, and again with a useless profile."""
    project = Project(tmp_path_factory.mktemp("profiled"))
    source = server.cache.project.store_path(SLIDE_ID)
    give_profile(shutil.copytree(source, project.store_path(SLIDE_ID)), table_profile())
    flip_a_bit(project, row=3, column=1)
    useless = shutil.copytree(source, project.store_path(USELESS))
    _rename(useless)
    give_profile(useless, b"no profile")
    with started_app(project.root, project.root / "server.log") as app:
        yield app.url


def _rename(store: Path) -> None:
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["slide_id"] = USELESS
    write_json(store / "zarr.json", root)


def open_slide(page: Page, url: str, query: str = "", slide_id: str = SLIDE_ID) -> None:
    page.goto(f"{url}/?slide={slide_id}&{AT}{query}")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")


def colours(page: Page, places: list[tuple[int, int]] = PLACES) -> np.ndarray:
    """Colours on the screen after the next redraw: uint8 (n, 3)."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    shown = page.evaluate(f"places => places.map(([x, y]) => {HOOK}.slideColour(x, y).slice(0, 3))", places)
    return np.array(shown, np.uint8)


def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.asarray(deltaE_ciede2000(rgb2lab(first[None]), rgb2lab(second[None]))[0])


def test_the_screen_shows_what_little_cms_makes_of_the_colours_scanned_and_asks_for_no_tile_to_change_it(
    page: Page, app_url: str
) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    open_slide(page, app_url)
    wait_for(page, f"{HOOK}.isReadAhead()")
    corrected = colours(page)
    before = set(requested)
    requested.clear()

    page.keyboard.press("k")
    scanned = colours(page)
    assert page.get_by_text("Image changed: colours as scanned.").is_visible()
    page.keyboard.press("k")
    again = colours(page)

    off = difference(corrected, ToSrgb(table_profile())(scanned[None])[0])
    assert off.mean() <= 0.5
    assert np.percentile(off, 99) <= 1
    assert difference(corrected, scanned).mean() > 3
    assert np.array_equal(corrected, again)
    assert page.get_by_text("Image changed").count() == 0
    again_asked = [url for url in before.intersection(requested) if "/tiles/" in url or "/colour/" in url]
    assert not again_asked, again_asked


def test_a_changed_picture_is_said_kept_in_the_link_and_undone_by_a_key(page: Page, app_url: str) -> None:
    open_slide(page, app_url)
    standard = colours(page)

    page.keyboard.press("i")
    assert page.get_by_role("radio", name="corrected with the scanner's profile").evaluate(
        "radio => radio.getRootNode().activeElement === radio"
    )
    page.keyboard.press("Tab")
    page.keyboard.press("PageDown")
    darker = colours(page)
    assert (darker.astype(int) < standard).mean() > 0.95
    note = page.get_by_text("Image changed: brightness −0.")
    assert note.is_visible()
    notice = note.inner_text()
    wait_for(page, "new URLSearchParams(location.search).has('image')")
    page.screenshot(path=ARTIFACTS / "image-changed.png")

    page.reload()
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    assert np.array_equal(colours(page), darker)
    assert note.inner_text() == notice

    page.keyboard.press("I")
    assert np.array_equal(colours(page), standard)
    assert note.count() == 0
    wait_for(page, "!new URLSearchParams(location.search).has('image')")


def test_what_is_damaged_stays_hatched_in_its_own_colours(page: Page, app_url: str) -> None:
    hole = [(x, y) for x in range(280, 500, 20) for y in range(800, 1000, 20)]
    open_slide(page, app_url)
    before, tissue = colours(page, hole), colours(page)

    page.keyboard.press("i")
    page.get_by_role("slider", name="Contrast").fill("2")

    assert np.array_equal(colours(page, hole), before)
    assert difference(colours(page), tissue).mean() > 4


def test_a_slide_whose_profile_is_of_no_use_is_shown_as_scanned_and_says_so_and_a_forged_link_changes_nothing(
    page: Page, app_url: str
) -> None:
    open_slide(page, app_url, "&image=9,NaN,1,<b>", slide_id=USELESS)

    x_px0, y_px0 = np.array(PLACES).T
    assert np.abs(colours(page).astype(int) - slide_pixels()[y_px0, x_px0]).mean() < 6
    assert page.get_by_text("This slide's colour profile cannot be used").is_visible()
    assert page.get_by_text("Image changed").count() == 0


@pytest.mark.parametrize(("at", "most_away"), [(AT, 0), (HALF, 1)], ids=["pixel for pixel", "half"])
def test_the_screen_shows_the_pixels_stored_or_at_half_of_a_level_the_mean_of_four(
    page: Page, server: Server, app_url: str, at: str, most_away: float
) -> None:
    page.goto(f"{app_url}/?slide={USELESS}&{at}")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    stored = server.cache.slide(SLIDE_ID).reader.read_region(0, Box(0, 0, WIDTH_PX0, HEIGHT_PX0)).astype(float)
    side_px0 = 1 if at == AT else 2
    corners = np.array(PLACES) + np.indices((side_px0, side_px0)).reshape(2, -1).T[:, None]
    mean = stored[corners[..., 1], corners[..., 0]].mean(0)

    assert np.abs(colours(page) - mean).mean() <= most_away


def test_the_viewer_leads_to_a_page_that_checks_the_screen(page: Page, app_url: str) -> None:
    open_slide(page, app_url)
    page.keyboard.press("i")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Check this screen").click()
    check = opened.value

    for heading in ("This screen", "Black and white", "Grey steps", "Gamma and sharpness", "Size"):
        check.get_by_role("heading", name=heading, exact=True).wait_for()
    assert RESEARCH_USE in check.locator("body").inner_text()
    assert check.title().startswith("Check this screen")
    drawn = check.locator(".steps .patch").evaluate_all(
        "all => all.map(each => getComputedStyle(each).backgroundColor)"
    )
    assert drawn == [f"rgb({value}, {value}, {value})" for value in range(0, 256, 15)]
    stripes = check.locator(".stripes canvas").evaluate(
        "canvas => [0, 1, 2, 3].map(y => canvas.getContext('2d').getImageData(5, y, 1, 1).data[0])"
    )
    assert stripes == [255, 0, 255, 0]
    check.screenshot(path=ARTIFACTS / "calibration.png", full_page=True)
