"""The viewer as a pathologist uses it, in a real browser against the running app."""

from __future__ import annotations

import math
import re
import statistics
import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.browser.conftest import ARTIFACTS, Server, wait_for
from tests.pathology_app.small_project import (
    HEIGHT_PX0,
    HOTSPOTS_XY_PX0,
    MODEL_ID,
    SLIDE_ID,
    WIDTH_PX0,
    slide_pixels,
)

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

HOOK = "window.__gemslide"
HEADER_PX, ROW_PX = 36, 35
TAKEN = """key => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    document.body.dispatchEvent(event);
    return event.defaultPrevented;
}"""
NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
"""Wait for the next frame of Streamlit's table."""


def hook(page: Page, call: str) -> Any:
    return page.evaluate(f"{HOOK}.{call}")


def wait_until(page: Page, condition: str) -> None:
    wait_for(page, f"{HOOK} && {condition.replace('hook', HOOK)}")


def open_slide(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?slide={SLIDE_ID}&model={MODEL_ID}")
    wait_until(page, "hook.isSettled() && hook.hasOverlay()")


def click_px0(page: Page, x_px0: float, y_px0: float) -> None:
    stage = page.locator(".marks").bounding_box()
    place = hook(page, "placement()")
    assert stage
    page.mouse.click(
        stage["x"] + place["left"] + (x_px0 + 0.5) * place["scale"],
        stage["y"] + place["top"] + (y_px0 + 0.5) * place["scale"],
    )


def distance_px(page: Page, element: Locator, x_px0: float, y_px0: float) -> float:
    """Distance from a level-0 pixel to the nearest point of an element on the screen."""
    stage, box, place = page.locator(".marks").bounding_box(), element.bounding_box(), hook(page, "placement()")
    assert stage
    assert box
    x, y = stage["x"] + place["left"] + x_px0 * place["scale"], stage["y"] + place["top"] + y_px0 * place["scale"]
    return math.hypot(
        x - min(max(x, box["x"]), box["x"] + box["width"]), y - min(max(y, box["y"]), box["y"] + box["height"])
    )


def click_table(page: Page, x: float, y: float) -> None:
    table = page.get_by_test_id("stDataFrame")
    table.locator("canvas").first.wait_for()
    box = table.bounding_box()
    assert box
    # Move first, as a hand does: a Streamlit table misses clicks of a pointer that has just jumped there.
    page.mouse.move(box["x"] + x - 6, box["y"] + y, steps=12)
    page.evaluate(NEXT_FRAME)
    page.mouse.move(box["x"] + x, box["y"] + y, steps=3)
    page.mouse.click(box["x"] + x, box["y"] + y)


def centre_px0(page: Page) -> tuple[float, float]:
    place = hook(page, "placement()")
    stage = page.locator(".marks").bounding_box()
    assert stage
    return (
        (stage["width"] / 2 - place["left"]) / place["scale"],
        (stage["height"] / 2 - place["top"]) / place["scale"],
    )


def test_a_click_in_the_worklist_opens_the_slide(page: Page, server: Server) -> None:
    page.goto(server.url)
    with page.expect_response(lambda response: "/thumbnails/" in response.url):
        page.get_by_text("1 of 1 slide").wait_for()
    page.screenshot(path=ARTIFACTS / "worklist.png")
    assert page.title() == "Worklist · gemslide"

    page.get_by_role("cell", name="1800 × 1300 px").click()  # anywhere in the row

    wait_until(page, f"hook.slideId() === '{SLIDE_ID}' && hook.isSettled()")
    assert f"slide={SLIDE_ID}" in page.url
    assert page.get_by_text("Research use only. Not for diagnosis.").is_visible()


def test_a_keyboard_reaches_every_slide_of_the_worklist_and_chooses_one(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_text("1 of 1 slide").wait_for()
    link = page.get_by_role("link", name=SLIDE_ID)
    link.wait_for()
    for _ in range(30):
        page.keyboard.press("Tab")
        if link.evaluate("link => link === document.activeElement"):
            break
    assert "slide=" not in page.url, "to come past a slide is not to choose it"

    page.keyboard.press("Enter")

    wait_until(page, f"hook.slideId() === '{SLIDE_ID}' && hook.isSettled()")
    assert page.title() == f"{SLIDE_ID} · gemslide"


def test_a_slide_opens_in_a_tab_of_its_own_and_the_list_stays(page: Page, server: Server) -> None:
    page.goto(server.url)
    link = page.get_by_role("link", name=SLIDE_ID)
    link.wait_for()
    with page.context.expect_page() as opened:
        link.click(modifiers=["Control"])
    wait_until(opened.value, f"hook.slideId() === '{SLIDE_ID}' && hook.isSettled()")
    assert page.url == f"{server.url}/"


def test_the_filter_follows_what_is_typed_and_back_takes_it_away(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_text("1 of 1 slide").wait_for()

    page.get_by_label("Filter").press_sequentially("zz")
    page.get_by_text("0 of 1 slide").wait_for()
    assert "find=zz" in page.url
    page.reload()
    page.get_by_text("0 of 1 slide").wait_for()
    assert page.get_by_label("Filter").input_value() == "zz"

    page.get_by_label("Filter").fill("s 0")
    page.get_by_text("1 of 1 slide").wait_for()
    page.go_back()
    page.get_by_text("0 of 1 slide").wait_for()
    wait_for(page, "document.activeElement !== null")
    assert page.get_by_label("Filter").input_value() == "zz"


def open_from_worklist(page: Page) -> None:
    page.get_by_text("1 of 1 slide").wait_for()
    page.get_by_role("link", name=SLIDE_ID).click()


def test_the_whole_slide_lies_where_it_should(page: Page, server: Server) -> None:
    """Colours on the screen are the slide's own, also in the last column and row, whose chunks are padded."""
    open_slide(page, server)
    pixels = slide_pixels().astype(float)

    for x_px0, y_px0 in [(900, 650), (60, 1240), (1780, 700), (1700, 60), (1790, 1290), (480, 864)]:
        on_screen = np.array(hook(page, f"slideColour({x_px0}, {y_px0})"))[:3]
        around = pixels[y_px0 - 4 : y_px0 + 5, x_px0 - 4 : x_px0 + 5].reshape(-1, 3)
        assert np.all(on_screen >= around.min(0) - 16), (x_px0, y_px0)
        assert np.all(on_screen <= around.max(0) + 16), (x_px0, y_px0)


def test_no_padding_shows_at_the_right_and_bottom_edge(page: Page, server: Server) -> None:
    """Chunks there are padded in black, which a smoothing browser used to mix into the slide's last pixels."""
    open_slide(page, server)
    stage = page.locator(".marks").bounding_box()
    assert stage
    page.mouse.move(stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2)
    wheel(page, 1)  # zoomed out a little, so that both edges are on the stage

    scales = []
    for _ in range(8):
        place = hook(page, "placement()")
        scales.append(place["scale"])
        for edge, colours in edge_colours(page, place).items():
            on_screen = np.array([colour[:3] for colour in colours if colour[3]])
            assert len(on_screen) >= EDGE_PX
            # Glass of value 243 is there.
            assert on_screen.min() > 225, (edge, place["scale"], colours)
        right, bottom = place["left"] + WIDTH_PX0 * place["scale"], place["top"] + HEIGHT_PX0 * place["scale"]
        page.mouse.move(stage["x"] + right - 2, stage["y"] + bottom - 2)
        wheel(page, -2)
    page.screenshot(path=ARTIFACTS / "slide-corner.png")
    assert scales[0] < 0.6
    assert scales[-1] > 5


EDGE_PX = 5


def edge_colours(page: Page, place: dict[str, float]) -> dict[str, list[list[int]]]:
    """Last screen pixels that show the slide, and the first two beside it, near its corner."""
    scale = place["scale"]

    def across(start: float, size_px0: int) -> list[float]:
        edge = math.floor(start + size_px0 * scale)
        return [(edge + step + 0.5 - start) / scale - 0.5 for step in range(-EDGE_PX, 2)]

    x_px0, y_px0 = WIDTH_PX0 - 30 / scale, HEIGHT_PX0 - 30 / scale
    return {
        "right": [hook(page, f"slideColour({x}, {y_px0})") for x in across(place["left"], WIDTH_PX0)],
        "bottom": [hook(page, f"slideColour({x_px0}, {y})") for y in across(place["top"], HEIGHT_PX0)],
    }


def wheel(page: Page, clicks: int) -> None:
    for _ in range(abs(clicks)):
        page.mouse.wheel(0, math.copysign(100, clicks))
        page.evaluate(NEXT_FRAME)
    wait_until(page, "hook.isSettled()")


def test_zooming_in_asks_for_finer_tiles(page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 900, "height": 700})
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    open_slide(page, server)
    before = hook(page, "placement()")
    assert any(f"/tiles/{SLIDE_ID}/2/" in url for url in requested)
    assert not any(f"/tiles/{SLIDE_ID}/0/" in url for url in requested)
    requested.clear()

    page.get_by_role("button", name="40×", exact=True).click()
    wait_until(page, f"hook.placement().scale > {2 * before['scale']} && hook.isSettled()")

    assert any(f"/tiles/{SLIDE_ID}/0/" in url for url in requested)
    assert hook(page, "placement()")["scale"] == pytest.approx(2.0, rel=0.01)  # 40x is 0.25 µm per screen pixel
    page.screenshot(path=ARTIFACTS / "slide-40x.png")


def test_the_overlay_changes_without_the_server(page: Page, server: Server) -> None:
    open_slide(page, server)
    page.screenshot(path=ARTIFACTS / "slide.png")
    (x_px0, y_px0), _ = HOTSPOTS_XY_PX0
    colour = f"overlayColour({x_px0}, {y_px0})"
    ring = f"overlayColour({x_px0 + 64}, {y_px0})"
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    assert hook(page, colour)[3] == 128  # opacity 0.5
    assert hook(page, "overlayColour(700, 300)")[3] == 0  # below the threshold
    assert hook(page, "overlayColour(20, 20)")[3] == 0  # not predicted

    page.get_by_label("Threshold", exact=True).fill("0.9")
    assert hook(page, ring)[3] == 0  # 0.87
    assert hook(page, colour)[3] == 128  # 0.97
    page.get_by_label("Threshold", exact=True).fill("0")
    assert hook(page, "overlayColour(700, 300)")[3] == 128
    assert hook(page, "overlayColour(20, 20)")[3] == 0
    page.screenshot(path=ARTIFACTS / "slide-threshold-0.png")

    page.get_by_label("Opacity", exact=True).fill("1")
    signal = hook(page, colour)
    page.get_by_label("Colours", exact=True).select_option("Viridis")
    assert signal[3] == hook(page, colour)[3] == 255
    assert signal != hook(page, colour)

    page.keyboard.press("o")
    assert hook(page, colour)[3] == 0
    page.get_by_label("Show P(positive)").check()
    assert hook(page, colour)[3] == 255
    # The tab's icon is requested when a link changes, viewings are stored from time to time, and on a slow machine
    # the judgements of hotspots are read only now.
    others = ("/favicon.png", "/coverage/", "/hotspots/")
    assert [url for url in requested if not any(other in url for other in others)] == []


def test_the_overlay_lies_on_the_predicted_cells(page: Page, server: Server) -> None:
    """The cell's edge lies between the same two level-0 pixels as in the table of predictions."""
    open_slide(page, server)
    page.get_by_label("Threshold", exact=True).fill("0.9")
    page.keyboard.press("n")
    wait_until(page, "hook.currentHotspot() === 0 && hook.isSettled()")
    page.get_by_role("button", name="40×", exact=True).click()
    wait_until(page, "hook.isSettled()")
    left, top = 448, 832  # of the only cell above 0.9; 64 px0 on each side

    inside = [(left, top + 31), (left + 63, top + 31), (left + 31, top), (left + 31, top + 63)]
    outside = [(left - 1, top + 31), (left + 64, top + 31), (left + 31, top - 1), (left + 31, top + 64)]
    assert [hook(page, f"overlayColour({x}, {y})")[3] for x, y in inside] == [128] * 4
    assert [hook(page, f"overlayColour({x}, {y})")[3] for x, y in outside] == [0] * 4


def test_a_hotspot_row_and_the_keys_move_the_view(page: Page, server: Server) -> None:
    open_slide(page, server)

    page.get_by_role("button", name="2. positive 0.81").click()
    wait_until(page, "hook.currentHotspot() === 1 && hook.isSettled()")
    assert centre_px0(page) == pytest.approx(HOTSPOTS_XY_PX0[1], abs=1)
    page.screenshot(path=ARTIFACTS / "slide-hotspot.png")

    page.keyboard.press("n")
    wait_until(page, "hook.currentHotspot() === 0 && hook.isSettled()")
    assert centre_px0(page) == pytest.approx(HOTSPOTS_XY_PX0[0], abs=1)
    page.keyboard.press("p")
    wait_until(page, "hook.currentHotspot() === 1 && hook.isSettled()")


def test_a_hotspot_row_can_be_clicked_anywhere_and_again(page: Page, server: Server) -> None:
    open_slide(page, server)
    for x in (20, 20, 120):
        page.get_by_role("button", name="Fit", exact=True).click()
        wait_until(page, "hook.isSettled()")
        whole = hook(page, "placement()")

        page.get_by_role("button", name="1. positive 0.97").click(position={"x": x, "y": 30})

        wait_until(page, f"Math.abs(hook.placement().left - {whole['left']}) > 20 && hook.isSettled()")
        assert centre_px0(page) == pytest.approx(HOTSPOTS_XY_PX0[0], abs=1)


def test_back_leads_from_the_slide_to_the_worklist_and_forward_again(page: Page, server: Server) -> None:
    page.goto(server.url)
    open_from_worklist(page)
    wait_until(page, f"hook.slideId() === '{SLIDE_ID}' && hook.isSettled()")

    page.go_back()
    page.get_by_text("1 of 1 slide").wait_for()
    page.go_forward()

    wait_until(page, f"hook.slideId() === '{SLIDE_ID}' && hook.isSettled()")


def test_a_click_reads_the_stored_probability(page: Page, server: Server) -> None:
    open_slide(page, server)
    predictions = server.cache.predictions(SLIDE_ID, MODEL_ID).predictions
    for x_px0, y_px0 in [*HOTSPOTS_XY_PX0, (900, 650)]:
        stored = predictions.at(x_px0, y_px0)
        assert stored

        click_px0(page, x_px0, y_px0)

        text = f"P(positive) = {stored['positive']:.2f}"
        beside = page.locator(".probe").get_by_text(text, exact=True)
        beside.wait_for()
        assert distance_px(page, beside, x_px0, y_px0) < 40
        page.get_by_text(f"(pixel {x_px0}, {y_px0})").wait_for()
        page.get_by_role("cell", name=f"{stored['negative']:.3f}", exact=True).wait_for()
    page.screenshot(path=ARTIFACTS / "slide-click.png")
    click_px0(page, 20, 20)
    page.locator(".probe").get_by_text("not predicted").wait_for()


def test_rings_follow_the_threshold_and_a_message_ends_where_its_hotspot_leaves_the_screen(
    page: Page, server: Server
) -> None:
    open_slide(page, server)
    assert hook(page, "shownHotspots()") == [0, 1]
    page.get_by_label("Threshold", exact=True).fill("0.9")  # the second hotspot reaches 0.81
    assert hook(page, "shownHotspots()") == [0]
    for _ in range(2):  # the next hotspot is the first again
        page.keyboard.press("n")
        wait_until(page, "hook.currentHotspot() === 0 && hook.isSettled()")
    page.get_by_text("Hotspot 1 of 2 · positive 0.97").wait_for()

    page.get_by_label("Threshold", exact=True).blur()
    for _ in range(2):
        page.keyboard.press("Shift+ArrowRight")
    page.get_by_text("Hotspot 1 of 2").wait_for(state="detached")
    assert hook(page, "currentHotspot()") == 0

    page.get_by_label("Threshold", exact=True).fill("1")
    page.keyboard.press("n")
    page.get_by_text("No hotspot reaches the threshold.").wait_for()


def test_a_link_leads_to_the_same_view_class_and_colours_also_after_a_reload(page: Page, server: Server) -> None:
    open_slide(page, server)
    page.keyboard.press("5")  # 20x
    page.keyboard.press("ArrowLeft")
    page.get_by_label("Threshold", exact=True).fill("0.7")
    page.get_by_label("Colours", exact=True).select_option("Viridis")
    page.keyboard.press("o")
    wait_until(page, "hook.isSettled()")
    before = hook(page, "placement()")
    wait_for(page, "location.search.includes('at=') && location.search.includes('overlay=0.50,0.70,Viridis,off')")

    other = page.context.new_page()
    for opened in (page, other):
        opened.goto(page.url)
        wait_until(opened, "hook.isSettled()")
        assert hook(opened, "placement()") == pytest.approx(before, rel=1e-3, abs=1)
        assert not opened.get_by_label("Show P(positive)").is_checked()
        assert opened.get_by_label("Threshold", exact=True).input_value() == "0.7"
    page.keyboard.press("o")
    (x_px0, y_px0), _ = HOTSPOTS_XY_PX0
    assert hook(page, "shownHotspots()") == [0, 1]
    wait_for(page, f"{HOOK}.hasOverlay()")
    page.keyboard.press("0")
    wait_until(page, "hook.isSettled()")
    assert hook(page, f"overlayColour({x_px0}, {y_px0})")[1] > 150, "Viridis ends in yellow"


def test_keys_work_without_a_click_on_the_slide_and_are_listed(page: Page, server: Server) -> None:
    open_slide(page, server)
    whole = hook(page, "placement()")
    page.keyboard.press("6")
    wait_until(page, "hook.isSettled()")
    at_40x = hook(page, "placement()")
    assert at_40x["scale"] == pytest.approx(2.0, rel=0.01)

    page.keyboard.press("Shift+ArrowDown")
    stage = page.locator(".marks").bounding_box()
    assert stage
    assert at_40x["top"] - hook(page, "placement()")["top"] == pytest.approx(0.9 * stage["height"], rel=0.01)

    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("to the next field of view").wait_for()
    page.screenshot(path=ARTIFACTS / "slide-keys.png")
    page.keyboard.press("n")
    assert hook(page, "currentHotspot()") is None, "a key beside the list is not for the slide"
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.keyboard.press("Home")
    wait_until(page, "hook.placement().scale < 1 && hook.isSettled()")
    assert hook(page, "placement()") == pytest.approx(whole, abs=0.5)

    page.get_by_role("button", name="40×").focus()
    page.keyboard.press("ArrowRight")  # the button's own key
    assert hook(page, "placement()") == pytest.approx(whole, abs=0.5)
    page.keyboard.press("n")
    wait_until(page, "hook.currentHotspot() === 0")


def test_another_class_keeps_the_view(page: Page, server: Server) -> None:
    open_slide(page, server)
    page.keyboard.press("n")
    wait_until(page, "hook.currentHotspot() === 0 && hook.isSettled()")
    before = hook(page, "placement()")

    page.get_by_test_id("stSelectbox").filter(has_text="Class").locator("input").click()
    with page.expect_response(lambda response: f"/overlays/{SLIDE_ID}/{MODEL_ID}/0.png" in response.url):
        page.get_by_role("option", name="negative").click()

    page.locator(".legend").get_by_text("P(negative)").wait_for()
    assert hook(page, "placement()") == before


def test_leaving_and_coming_back_leaves_no_old_viewer(page: Page, server: Server) -> None:
    open_slide(page, server)
    page.get_by_role("button", name="Worklist").click()
    page.get_by_text("1 of 1 slide").wait_for()
    page.locator(".gemslide-viewer").wait_for(state="detached")
    assert not page.evaluate(TAKEN, "ArrowDown"), "the worklist scrolls"
    assert "at=" not in page.url

    open_from_worklist(page)

    wait_until(page, "hook.isSettled() && hook.hasOverlay()")
    assert hook(page, "liveViewers()") == 1
    page.locator(".stage").wait_for()


def test_a_wrong_link_is_one_message(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?slide=nobody")
    page.get_by_text("slide 'nobody': not in this project.").wait_for()


def test_a_tile_on_a_kept_connection_is_quick(server: Server) -> None:
    """Under 20 ms: without TCP_NODELAY each would wait 40 ms for a delayed acknowledgement."""
    with httpx.Client(base_url=server.url) as client:
        client.get(f"/tiles/{SLIDE_ID}/0/0_0")
        seconds = []
        for index in range(30):
            start = time.perf_counter()
            assert client.get(f"/tiles/{SLIDE_ID}/0/{index % 4}_{index % 3}").status_code == 200
            seconds.append(time.perf_counter() - start)
    quartile_ms = 1000 * statistics.quantiles(seconds)[0]  # other tests may run beside this one
    print(f"a quarter of 30 tiles on one connection took less than {quartile_ms:.1f} ms")
    assert quartile_ms < 20


def turned_places(page: Page) -> list[tuple[float, float]]:
    """Screen positions of the first hotspot and the slide's corners."""
    points = [HOTSPOTS_XY_PX0[0], (0, 0), (WIDTH_PX0, 0)]
    return [(at["x"], at["y"]) for at in (hook(page, f"toScreen({x}, {y})") for x, y in points)]


def test_overlay_and_clicks_follow_a_slide_that_is_turned_and_mirrored(page: Page, server: Server) -> None:
    open_slide(page, server)
    (x_px0, y_px0), _ = HOTSPOTS_XY_PX0
    dark = [(480, 864), (900, 650), (1000, 500)]
    before = turned_places(page)
    upright = [hook(page, f"slideColour({x}, {y})")[:3] for x, y in dark]

    for keys in (["t"], ["v"], [">", ">"]):
        for key in keys:
            page.keyboard.press(key)
        corner_x, corner_y = before[1]
        corner = "hook.toScreen(0, 0)"
        turned = f"Math.hypot({corner}.x - {corner_x}, {corner}.y - {corner_y}) > 1"
        wait_until(page, f"hook.isSettled() && {turned}")
        before = turned_places(page)
        for (x, y), colour in zip(dark, upright, strict=True):  # smoothing changes it less than other tissue would
            differences = [
                f"Math.abs(hook.slideColour({x}, {y})[{i}] - {value}) < 60" for i, value in enumerate(colour)
            ]
            wait_until(page, " && ".join(differences))
        inside = [(x_px0 + dx, y_px0 + dy) for dx in (-80, 80) for dy in (-80, 80)]
        outside = [(x_px0 + dx, y_px0 + dy) for dx in (-112, 112) for dy in (-112, 112)]
        opacities = {128: inside, 0: outside}  # the overlay is drawn in the frame after the slide's last
        places = [(x, y, opacity) for opacity, places in opacities.items() for x, y in places]
        wait_until(page, " && ".join(f"hook.overlayColour({x}, {y})[3] === {opacity}" for x, y, opacity in places))
        stage, at = page.locator(".marks").bounding_box(), hook(page, f"toScreen({x_px0 + 0.5}, {y_px0 + 0.5})")
        assert stage
        page.mouse.click(stage["x"] + at["x"], stage["y"] + at["y"])
        page.get_by_role("cell", name="240 µm right, 432 µm down").wait_for()
        page.mouse.click(stage["x"] + 3, stage["y"] + stage["height"] - 3)
    page.screenshot(path=ARTIFACTS / "slide-turned.png")
    wait_for(page, "/at=[^&]*,[0-9]+,m/.test(location.search)")

    page.reload()
    wait_until(page, "hook.isSettled()")
    assert np.array(turned_places(page)) == pytest.approx(np.array(before), abs=1.5)
    page.keyboard.press("V")
    wait_until(page, "hook.isSettled()")
    (_, _), (left, top), (right, upper) = turned_places(page)
    assert right > left
    assert upper == pytest.approx(top)


def test_lengths_areas_and_counts_are_measured_by_mouse_and_by_keyboard(page: Page, server: Server) -> None:
    open_slide(page, server)
    wait_until(page, "hook.annotations.isSettled()")
    counts = "annotations.shown().filter(one => one.kind == 'count').length"
    earlier = hook(page, counts)  # those of other tests on this slide
    stage = page.locator(".marks").bounding_box()
    assert stage

    def click(x_px0: float, y_px0: float) -> None:
        at = hook(page, f"toScreen({x_px0}, {y_px0})")
        page.mouse.click(stage["x"] + at["x"], stage["y"] + at["y"])

    page.keyboard.press("m")
    page.get_by_text("Ruler: click the two ends; Backspace removes the first.").wait_for()
    click(300, 400)
    click(700, 700)
    (length,) = hook(page, "measured()")
    assert float(length.removesuffix(" µm")) == pytest.approx(250, abs=3)
    page.keyboard.press("M")
    for corner in ((300, 300), (1100, 300), (1100, 900), (300, 900)):
        click(*corner)
    click(300, 900)
    area = hook(page, "measured()")[1]
    assert area.startswith("0.1")
    assert "perimeter" in area

    page.keyboard.press("c")
    page.get_by_text("of it would lie on the scan").wait_for()  # the circle of 1 mm² is larger than this slide
    for key in ("Enter", "Enter", "2", "Enter"):
        page.keyboard.press(key)
    assert hook(page, "counted()") == 2
    page.get_by_role("row", name="negative 95 % CI 9.5 %").wait_for()
    page.keyboard.press("Backspace")
    assert hook(page, "counted()") == 1
    page.screenshot(path=ARTIFACTS / "slide-measured.png")
    page.keyboard.press("Escape")
    assert hook(page, "inHand()") is None
    click(480, 864)
    page.get_by_role("cell", name="432 µm down").wait_for()
    wait_until(page, "hook.annotations.isSaved()")

    page.reload()
    wait_until(page, "hook.isSettled() && hook.annotations.isSettled()")
    assert (len(hook(page, "measured()")), hook(page, counts) - earlier) == (2, 1)


def test_tissue_is_shown_as_an_outline_beside_the_prediction_and_stays_in_the_link(page: Page, server: Server) -> None:
    open_slide(page, server)
    page.locator("summary", has_text=re.compile(r"^Tissue$")).click()
    page.get_by_label("Show Tissue", exact=True).check()
    wait_until(page, "hook.isSettled() && hook.hasOverlay()")
    assert hook(page, "overlayColour(480, 864)")[3] == 128, "the prediction is there"
    assert hook(page, "overlayColour(700, 500)")[3] == 0, "inside of the outline nothing is tinted"
    wait_for(page, "location.search.includes('layers=tissue:')")

    page.reload()
    wait_until(page, "hook.isSettled() && hook.hasOverlay()")
    assert page.get_by_label("Show Tissue", exact=True).is_checked()
    page.screenshot(path=ARTIFACTS / "slide-layers.png")
