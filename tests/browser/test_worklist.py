"""The worklist in a real browser: by keyboard, as a gallery, in dark mode, and when the server stops."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from pipeline.project import Project
from pipeline.store.format.layout import PREDICTIONS
from tests.browser.conftest import ARTIFACTS, Server, wait_for
from tests.browser.test_viewer import open_slide
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

NARROW = {"width": 1024, "height": 768}
MIN_PX = 32
"""Minimum size of click targets."""


def contrast(colours: list[str]) -> float:
    """Contrast of two colours as CSS computes them ("rgb(1, 2, 3)"), by WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [float(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    dark, light = sorted(map(luminance, colours))
    return (light + 0.05) / (dark + 0.05)


def tab_to(page: Page, element: Locator) -> None:
    for _ in range(30):
        page.keyboard.press("Tab")
        if element.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError("the keyboard does not reach it")


def test_a_keyboard_sorts_filters_and_unfolds_in_a_narrow_window_and_no_column_is_cut(
    page: Page, server: Server, tmp_path: Path
) -> None:
    small, project = server.cache.project, Project(tmp_path)
    make_many_slides(small, tmp_path, 3)
    shutil.copytree(small.result_dir(SLIDE_ID, MODEL_ID), project.result_dir("many-00001", MODEL_ID))
    predictions = project.store_path("many-00001") / PREDICTIONS
    shutil.rmtree(predictions)  # without values
    shutil.copytree(small.store_path(SLIDE_ID) / PREDICTIONS, predictions)
    (tmp_path / "cohort.csv").write_text("path,slide_id,patient_id\nx,many-00000,P-1\nx,many-00001,P-1\n")
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    with started_app(tmp_path, tmp_path / "server.log") as app:
        page.goto(app.url)
        page.get_by_text("3 of 3 slides.").wait_for()
        tab_to(page, page.get_by_role("link", name="Top score"))
        page.keyboard.press("Enter")
        page.get_by_role("columnheader", name="Top score ▼").wait_for()
        assert page.locator("tbody a.gs-go").first.inner_text() == "many-00001"
        assert page.url.endswith("/?sort=score")
        assert page.locator("th[aria-sort=descending]").count() == 1
        page.screenshot(path=ARTIFACTS / "worklist-1024.png")
        assert page.evaluate(
            "[...document.querySelectorAll('.gs-scroll')].every((box) => box.scrollWidth <= box.clientWidth)"
        )
        for column in ("Case", "Top score", "Predictions of"):
            box = page.get_by_role("columnheader", name=column).bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= NARROW["width"]
        pressed = page.locator("a.gs-go:visible, button:visible, label:has(input):visible")
        assert min(box["height"] for control in pressed.all() if (box := control.bounding_box())) >= MIN_PX

        page.get_by_role("columnheader", name="Image").click()  # leads nowhere
        page.get_by_text("By case").click()
        fold = page.locator("summary", has_text="P-1")
        fold.wait_for()
        assert not page.get_by_role("link", name="many-00001").is_visible()
        fold.focus()
        page.keyboard.press("Enter")
        page.get_by_role("link", name="many-00001").wait_for()
        assert page.url.endswith("/?sort=score&group=case")


def test_the_gallery_shows_the_heat_map_on_the_picture_and_a_card_leads_to_its_slide(
    page: Page, server: Server
) -> None:
    page.goto(f"{server.url}/?view=gallery")
    wait_for(page, "[...document.querySelectorAll('.gs-card img')].filter((image) => image.naturalWidth).length === 2")
    picture, heat = (page.locator(".gs-card img").nth(index).bounding_box() for index in (0, 1))
    assert picture == heat
    page.screenshot(path=ARTIFACTS / "gallery.png")

    assert picture is not None
    page.mouse.click(picture["x"] + picture["width"] / 2, picture["y"] + picture["height"] / 2)

    page.wait_for_url(f"**/?view=gallery&slide={SLIDE_ID}")


def test_in_the_dark_every_page_is_dark_and_can_be_read(browser: Browser, server: Server) -> None:
    with browser.new_context(color_scheme="dark", viewport=NARROW) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(server.url)
        page.get_by_role("link", name=SLIDE_ID).wait_for()
        ground = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
        for shown in ("th a", "tbody a.gs-go", "td.number", "[data-testid=stCaptionContainer] p", ".gs-note"):
            ink = page.locator(shown).first.evaluate("element => getComputedStyle(element).color")
            assert contrast([ink, ground]) >= 4.5, (shown, ink, ground)
        page.screenshot(path=ARTIFACTS / "worklist-dark.png")


WATCHES = "[...document.head.querySelectorAll('style')].some((each) => each.textContent.includes('.gemslide-stopped'))"
"""Our own script, which loads after the rows, is running: before that, nothing would report a stopped server."""


def test_a_stopped_server_says_so_and_the_page_goes_on_when_it_is_back(
    page: Page, server: Server, tmp_path: Path
) -> None:
    root = server.cache.project.root
    with started_app(root, tmp_path / "first.log") as app:
        page.goto(app.url)
        page.get_by_role("link", name=SLIDE_ID).wait_for()
        wait_for(page, WATCHES)
    dialog = page.get_by_role("alertdialog")
    dialog.wait_for()
    assert "gemslide has stopped or cannot be reached." in dialog.inner_text()
    assert "gemslide app --project" in dialog.inner_text()
    assert not page.get_by_text("connected to the internet").is_visible()
    page.screenshot(path=ARTIFACTS / "stopped.png")

    with started_app(root, tmp_path / "second.log", "--port", str(app.port)):
        dialog.wait_for(state="detached")
        page.get_by_text("Gallery").click()
        page.wait_for_url("**/?view=gallery")
        page.locator(".gs-card").wait_for()


def test_the_picture_of_the_view_is_what_the_screen_shows(page: Page, server: Server) -> None:
    open_slide(page, server)
    # Controls over the slide on the screen, inside the image's strip or outside it.
    page.evaluate(
        "[...document.querySelectorAll('*')].map((each) => each.shadowRoot).filter(Boolean).forEach((root) => "
        "root.querySelectorAll('.stage .panel, .navigator').forEach((panel) => (panel.style.visibility = 'hidden')))"
    )
    page.locator(".export > summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Image of this view").click()
    page.locator(".export > summary").click()
    assert download.value.suggested_filename == f"{SLIDE_ID}_view.png"
    saved = np.asarray(Image.open(download.value.path()).convert("RGB"))

    box = page.locator(".marks").bounding_box()
    assert box is not None
    width, height = saved.shape[1], round(box["height"])
    clip = {"x": box["x"], "y": box["y"], "width": width, "height": height}
    shot = Image.open(io.BytesIO(page.screenshot(clip=clip)))  # type: ignore[arg-type]
    shown = np.asarray(shot.convert("RGB"))
    inner = np.s_[8 : height - 8, 8 : width - 8]  # the frame's corners are round
    assert np.abs(saved[:height][inner].astype(int) - shown[inner]).max() <= 1
    strip = saved[height:]
    assert (strip == 255).all(-1).mean() > 0.5
    assert len(np.unique(strip.reshape(-1, 3), axis=0)) > 50, "no colours are explained"
