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


@pytest.mark.parametrize(("size", "least"), [((1366, 768), 0.86), ((1920, 1080), 0.9), ((768, 1024), 0.75)])
def test_most_of_the_windows_height_is_slide_and_the_page_does_not_scroll(
    page: Page, server: Server, size: tuple[int, int], least: float
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_slide(page, server)
    stage = page.locator(".stage").bounding_box()
    assert stage
    assert stage["height"] / size[1] >= least
    main = "document.querySelector('[data-testid=stMain]')"
    assert page.evaluate(f"{main}.scrollHeight <= {main}.clientHeight")
    page.get_by_text("Research use only").wait_for()
    for name in ("head", "bar"):
        inner = page.locator(f".st-key-{name}").bounding_box()
        assert inner
        assert inner["y"] >= 0
        assert inner["y"] + inner["height"] <= stage["y"]


def test_a_slide_shown_before_its_page_stays_where_it_is(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 1366, "height": 768})
    page.add_init_script(
        """const places = window.places = [];
        const look = () => {
            for (const { shadowRoot } of [...document.querySelectorAll('*'), { shadowRoot: document }]) {
                const stage = shadowRoot?.querySelector('.gemslide-viewer .stage');
                const { top = 0, height = 0 } = stage?.getBoundingClientRect() ?? {};
                if (height && `${places.at(-1)}` !== `${[top, height]}`) places.push([top, height]);
            }
            requestAnimationFrame(look);
        };
        requestAnimationFrame(look);"""
    )
    open_slide(page, server)
    wait_for(page, "!document.querySelector('.gemslide-early')")
    stage = page.locator(".stage").bounding_box()
    assert stage
    assert page.evaluate("places") == [[stage["y"], stage["height"]]]
    assert stage["y"] + stage["height"] == 768 - 8


def test_the_panel_is_sized_by_mouse_and_keys_and_keeps_its_size(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 1366, "height": 768})
    open_slide(page, server)
    page.keyboard.press("4")  # zoomed, so that the slide is not fitted again into another stage
    wait_for(page, f"Math.abs({HOOK}.placement().scale - 0.5) < 1e-3 && {HOOK}.isSettled()")
    divider, side = page.get_by_role("separator", name="Size of the panel"), page.locator(".side")
    width = lambda: round(side.bounding_box()["width"])  # type: ignore[index]  # noqa: E731
    first, at = width(), divider.bounding_box()
    assert at
    page.mouse.move(at["x"] + 5, at["y"] + 200)
    page.mouse.down()
    page.mouse.move(at["x"] - 95, at["y"] + 200, steps=4)
    page.mouse.up()
    assert width() == pytest.approx(first + 100, abs=1)
    dragged, before = width(), placement(page)
    page.keyboard.press("ArrowLeft")
    assert width() == dragged + 16
    assert divider.get_attribute("aria-valuenow") == str(dragged + 16)
    assert placement(page)["scale"] == before["scale"], "the arrow key is the divider's, not the slide's"
    page.reload()
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    assert width() == dragged + 16
    divider.focus()
    for key, expected in (("End", 1342 - 240), ("Home", 160)):
        page.keyboard.press(key)
        assert width() == pytest.approx(expected, abs=12)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    divider.dblclick()
    assert width() == first


def test_groups_without_content_are_folded_until_they_have_some(page: Page, server: Server) -> None:
    open_slide(page, server)
    group = page.locator("details", has=page.get_by_text("At the last click", exact=True))
    assert group.get_attribute("open") is None
    page.mouse.click(*on_screen(page, WIDTH_PX0 / 2, HEIGHT_PX0 / 2))
    page.get_by_role("table", name="At the last click").wait_for()


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
