"""The slide in windows of various sizes, and in one that is resized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import Server, wait_for
from tests.browser.on_slide import HOOK, on_screen
from tests.pathology_app.small_project import HEIGHT_PX0, MODEL_ID, SLIDE_ID, WIDTH_PX0

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZES = {"small": (1024, 768), "laptop": (1280, 800), "large": (1920, 1080), "tablet": (820, 1180)}


def test_a_window_of_another_size_keeps_the_magnification_and_a_whole_slide_whole(page: Page, server: Server) -> None:
    open_slide(page, server)
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        wait_until_whole(page)

    page.keyboard.press("5")  # 20x, two pixels of the screen for each µm
    wait_for(page, f"Math.abs({HOOK}.placement().scale - 1) < 1e-3 && {HOOK}.isSettled()")
    for width, height in SIZES.values():
        page.set_viewport_size({"width": width, "height": height})
        wait_for(page, f"innerWidth === {width} && {HOOK}.isSettled()")
        assert placement(page)["scale"] == pytest.approx(1)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_nothing_lies_over_something_else_in_a_window_of_any_size(
    page: Page, server: Server, size: tuple[int, int]
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_slide(page, server)
    page.mouse.move(*on_screen(page, WIDTH_PX0 / 2, HEIGHT_PX0 / 2))
    page.locator(".readout").get_by_text("µm").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    corners = [page.locator(f".{name}").bounding_box() for name in ("scale", "readout", "legend")]
    shown = [corner for corner in corners if corner]
    assert len(shown) == 3
    for index, one in enumerate(shown):
        assert not [other for other in shown[index + 1 :] if overlap(one, other)], corners


def open_slide(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?slide={SLIDE_ID}&model={MODEL_ID}")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")


def placement(page: Page) -> Any:
    return page.evaluate(f"{HOOK}.placement()")


def wait_until_whole(page: Page) -> None:
    """Wait until the slide touches two sides of the stage and extends past none."""
    page.locator(".marks").evaluate(
        """(stage, [across_px0, down_px0]) => new Promise((done, fail) => {
            const ends = Date.now() + 30000;
            const look = () => {
                const { scale } = window.__gemslide.placement();
                const filled = Math.max(across_px0 * scale / stage.clientWidth, down_px0 * scale / stage.clientHeight);
                if (Math.abs(filled - 1) < 0.02) {
                    done();
                } else if (Date.now() > ends) {
                    fail(new Error(filled));
                } else {
                    setTimeout(look, 30);
                }
            };
            look();
        })""",
        [WIDTH_PX0, HEIGHT_PX0],
    )


def overlap(one: Any, other: Any) -> bool:
    return (
        min(one["x"] + one["width"], other["x"] + other["width"]) > max(one["x"], other["x"])
        and min(one["y"] + one["height"], other["y"] + other["height"]) > max(one["y"], other["y"])
    )  # fmt: skip
