"""A slider and keys turn the focus of a stack, and neighbouring planes are there before they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK
from tests.pathology_app.started_app import started_app
from tests.pipeline.make import PLAIN_TISSUE, sample_image
from tests.pipeline.slides.make_dicom import write_dicom_stack

if TYPE_CHECKING:
    from playwright.sync_api import Page

HEIGHTS_UM = (-3.0, -1.5, 0.0, 1.5)
FIRST = 2
AT = (700, 500)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[float, np.ndarray]]]:
    folder = tmp_path_factory.mktemp("stack")
    planes = {um: sample_image(1900, 1300, seed) for seed, um in enumerate(HEIGHTS_UM)}
    shown = write_dicom_stack(folder / "s.dcm", planes, tile_wh=(256, 256))
    config = IngestConfig(tissue=PLAIN_TISSUE)
    ingest_slide(IngestRequest(folder / "s.dcm", "S-1"), Project(folder / "p"), config)
    with started_app(folder / "p", folder / "server.log") as running:
        yield running.url, shown


def open_stack(page: Page, url: str, more: str = "") -> None:
    # Level 0, pixel by pixel: its pixels are on the screen as they are.
    page.goto(f"{url}/?slide=S-1&at=350.0,250.0,0.5{more}")
    wait_for(page, f"{HOOK} && {HOOK}.isReadAhead()")


def wait_for_pixels(page: Page, shown: dict[float, np.ndarray], plane: int) -> None:
    """Wait until a plane's own pixel is painted, a frame after the plane was put on the screen."""
    red, green, blue = shown[HEIGHTS_UM[plane]][AT[1], AT[0]].tolist()
    unlike = f"Math.max(Math.abs(c[0] - {red}), Math.abs(c[1] - {green}), Math.abs(c[2] - {blue}))"
    wait_for(page, f"((c) => {unlike} <= 2)({HOOK}.slideColour({AT[0]}, {AT[1]}))", seconds=10)


def wait_for_plane(page: Page, plane: int) -> None:
    wait_for(page, f"{HOOK}.focalPlane() === {plane} && {HOOK}.isReadAhead()")


def test_each_plane_is_shown_and_its_neighbours_are_there_before(page: Page, app) -> None:
    url, shown = app
    requests: list[str] = []
    open_stack(page, url)
    page.on("request", lambda request: requests.append(request.url))
    wait_for(page, f"{HOOK}.neighboursReady()")

    assert page.evaluate(f"{HOOK}.focalPlane()") == FIRST
    wait_for_pixels(page, shown, FIRST)
    up, down = "PageUp", "PageDown"
    for key, plane in ((down, 1), (up, 2), (up, 3), (down, 2), (down, 1), (down, 0)):
        wait_for(page, f"{HOOK}.neighboursReady()")
        before = len(requests)
        page.keyboard.press(key)
        wait_for(page, f"{HOOK}.focalPlane() === {plane}")
        fetched = [link for link in requests[before:] if f"/z{plane}/" in link]
        assert not fetched, "the neighbour was not loaded before"
        wait_for_pixels(page, shown, plane)
    page.keyboard.press("PageDown")  # there is none below
    assert page.evaluate(f"{HOOK}.focalPlane()") == 0


def test_the_slider_names_the_height_and_the_link_keeps_it(page: Page, app) -> None:
    url, shown = app
    open_stack(page, url)
    slider = page.get_by_role("slider", name="Focal plane")

    assert slider.get_attribute("aria-valuetext") == "0 µm"
    slider.fill("0")
    wait_for_plane(page, 0)
    assert page.get_by_text("−3 µm").is_visible()
    wait_for_pixels(page, shown, 0)
    wait_for(page, "new URL(location.href).searchParams.get('focus') === '-3'")
    page.screenshot(path=ARTIFACTS / "focus.png")
    page.reload()
    wait_for(page, f"{HOOK} && {HOOK}.focalPlane() === 0 && {HOOK}.isReadAhead()")
    wait_for_pixels(page, shown, 0)


def test_a_link_to_a_plane_that_does_not_exist_shows_the_one_at_0(page: Page, app) -> None:
    url, shown = app
    open_stack(page, url, "&focus=7")
    wait_for_plane(page, FIRST)
    wait_for_pixels(page, shown, FIRST)


def test_planes_keep_the_place_when_the_view_has_moved(page: Page, app) -> None:
    url, shown = app
    open_stack(page, url)
    page.keyboard.press("PageUp")
    wait_for_plane(page, 3)
    page.keyboard.press("0")
    wait_for(page, f"{HOOK}.isReadAhead()")
    page.keyboard.press("PageDown")
    wait_for_plane(page, FIRST)

    coarse = shown[0.0][:1296, :1896].reshape(162, 8, 237, 8, 3).mean((1, 3))
    colour = page.evaluate(f"{HOOK}.slideColour({AT[0]}, {AT[1]})")
    assert np.abs(np.array(colour[:3]) - coarse[AT[1] // 8, AT[0] // 8]).max() < 25
