"""Lists of slides in a real browser. Without a mouse: one Tab to the list, arrows between its rows, Enter opens, "/"
filters. The slides of a run: chosen exactly, half of them done, and one tried again with its scale."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tifffile

from pipeline.project import Project
from pipeline.store.reading.reader import StoreReader
from tests.browser.conftest import ARTIFACTS, Server, wait_for
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.started_app import StartedApp, started_app
from tests.small_trained_project import TISSUE_TOML, make_slide

if TYPE_CHECKING:
    from playwright.sync_api import Page

WITHOUT_SCALE = ("A-2", "A-10")
FOCUSED = "document.activeElement.textContent === '%s'"
IN_FILTER = (
    "document.activeElement.shadowRoot && document.activeElement.shadowRoot.activeElement.matches('input[type=search]')"
)


@pytest.fixture(scope="module")
def app(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedApp]:
    root = tmp_path_factory.mktemp("many")
    make_many_slides(server.cache.project, root, 7)
    (root / "incoming").mkdir()
    (root / "gemslide.toml").write_text(TISSUE_TOML)
    for seed, name in enumerate(("A-1", "A-2", "A-3", "A-10")):
        make_slide(root / "incoming" / f"{name}.tiff", seed)
    for name in WITHOUT_SCALE:
        remove_scale(root / "incoming" / f"{name}.tiff")
    with started_app(root, root / "server.log") as app:
        yield app
    log_text = (root / "server.log").read_text()
    assert not [line for line in log_text.splitlines() if "Traceback" in line or "ERROR" in line], log_text


def remove_scale(path: Path) -> None:
    with tifffile.TiffFile(path) as tiff:
        images = [page.asarray() for page in tiff.pages]
    with tifffile.TiffWriter(path) as tiff:
        for level, image in enumerate(images):
            tiff.write(
                image, tile=(256, 256), photometric="rgb", compression="jpeg", subfiletype=1 if level else 0,
                metadata=None,
            )  # fmt: skip


def names(page: Page) -> list[str]:
    return page.locator("tbody a.gs-go").all_inner_texts()


def test_one_tab_leads_to_the_list_and_arrows_and_enter_open_a_row(page: Page, app: StartedApp) -> None:
    page.goto(app.url)
    page.get_by_text("7 of 7 slides.").wait_for()
    wait_for(page, "document.querySelectorAll('tbody a.gs-go[tabindex=\"-1\"]').length === 6")
    first, second, *_, last = names(page)

    page.keyboard.press("Tab")
    wait_for(page, FOCUSED % first)
    page.keyboard.press("ArrowDown")
    wait_for(page, FOCUSED % second)
    page.keyboard.press("End")
    wait_for(page, FOCUSED % last)
    page.keyboard.press("ArrowDown")
    wait_for(page, FOCUSED % last)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.screenshot(path=ARTIFACTS / "list-keyboard.png")
    page.keyboard.press("Shift+Tab")  # the list is one stop: before it are its headings
    assert page.evaluate("document.activeElement.matches('th a')")
    page.keyboard.press("Tab")
    wait_for(page, FOCUSED % second)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**slide={second}*")
    page.get_by_role("heading", name="Worklist").wait_for(state="detached")


def test_slash_goes_to_the_filter_and_the_down_arrow_to_what_it_found(page: Page, app: StartedApp) -> None:
    page.goto(app.url)
    page.get_by_text("7 of 7 slides.").wait_for()
    wait_for(page, "document.querySelectorAll('tbody a.gs-go[tabindex=\"-1\"]').length === 6")
    page.get_by_label("Filter").wait_for()
    wanted = names(page)[4]
    page.keyboard.press("/")
    wait_for(page, IN_FILTER)
    page.keyboard.type(f"/{wanted}")  # text now
    page.get_by_text("0 of 7 slides.").wait_for()
    page.keyboard.press("Home")
    page.keyboard.press("Delete")
    page.get_by_text("1 of 7 slides.").wait_for()
    page.keyboard.press("ArrowDown")
    wait_for(page, FOCUSED % wanted)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**slide={wanted}*")


def test_cards_are_passed_in_both_directions(page: Page, app: StartedApp) -> None:
    page.set_viewport_size({"width": 1024, "height": 768})
    page.goto(f"{app.url}/?view=gallery")
    page.locator(".gs-card").first.wait_for()
    wait_for(page, "document.querySelectorAll('.gs-card a.gs-go[tabindex=\"-1\"]').length === 6")
    cards = page.locator(".gs-card a.gs-go").all_inner_texts()
    columns = page.evaluate(
        "new Set([...document.querySelectorAll('.gs-card')].map((card) => card.getBoundingClientRect().left)).size"
    )
    assert 1 < columns < 7
    page.keyboard.press("Tab")
    wait_for(page, FOCUSED % cards[0])
    page.keyboard.press("ArrowRight")
    wait_for(page, FOCUSED % cards[1])
    page.keyboard.press("ArrowDown")
    wait_for(page, FOCUSED % cards[1 + columns])
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    wait_for(page, FOCUSED % cards[0])


def test_a_link_to_no_page_says_so(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/?page=nosuch")
    page.get_by_text("This app has no page named “nosuch”.").wait_for()
    assert page.title() == "No such page · gemslide"
    page.get_by_role("button", name="Worklist").click()
    page.get_by_text("7 of 7 slides.").wait_for()
    page.goto(f"{app.url}/?page=2")  # beyond the end of the list: the last page of it
    page.get_by_text("7 of 7 slides.").wait_for()


def test_half_a_run_is_amber_and_a_slide_without_scale_is_tried_again_with_it(page: Page, app: StartedApp) -> None:
    project = Project(app.log.parent)
    page.set_viewport_size({"width": 1366, "height": 768})
    page.goto(f"{app.url}/?page=runs&new=ingest")
    slides = page.get_by_role("combobox", name=re.compile("Slides"))
    slides.click()
    page.keyboard.type("A1")  # an in-order match of A-1 and of A-10
    page.keyboard.press("Escape")
    assert page.locator("[data-baseweb=tag]").count() == 0
    page.get_by_label("List only names that contain").fill("A-1")
    page.keyboard.press("Enter")
    slides.click()
    page.get_by_role("option", name="incoming/A-1.tiff", exact=True).click()
    page.keyboard.press("Escape")
    page.get_by_text("-- incoming/A-1.tiff", exact=False).wait_for()
    page.get_by_label("List only names that contain").fill("")
    page.keyboard.press("Enter")
    for name in ("A-2", "A-3", "A-10"):
        slides.click()
        page.get_by_role("option", name=f"incoming/{name}.tiff", exact=True).click()
        page.keyboard.press("Escape")
    page.get_by_text("-- incoming/A-1.tiff incoming/A-2.tiff incoming/A-3.tiff incoming/A-10.tiff").wait_for()
    page.screenshot(path=ARTIFACTS / "run-form.png", full_page=True)
    page.get_by_role("button", name="Start …").click()
    page.get_by_role("button", name="Start now").click()

    page.get_by_text("2 of 4 done", exact=True).first.wait_for()  # while it redraws, the page has the old one too
    rows = page.get_by_role("table", name="Slides of the run").locator("tbody tr")
    assert [row.locator("td").first.inner_text() for row in rows.all()] == ["A-2", "A-10", "A-1", "A-3"]
    assert page.get_by_role("link", name="Open").count() == 2
    page.screenshot(path=ARTIFACTS / "run-half.png", full_page=True)
    half = page.url
    page.get_by_role("link", name="Try again with µm per pixel …").first.click()
    wait_for(page, "document.activeElement.matches('.st-key-again input')")
    page.screenshot(path=ARTIFACTS / "run-again.png", full_page=True)
    page.keyboard.press("Enter")
    page.get_by_text("Enter the µm per pixel first.").wait_for()
    page.get_by_label("µm per pixel").fill("0.25")
    page.keyboard.press("Enter")
    page.get_by_text("Slide A-2 is being ingested again with 0.25 µm per pixel.").wait_for()
    page.get_by_text("done", exact=True).first.wait_for()
    assert StoreReader(project.store_path("A-2")).attributes.mpp0 == 0.25
    assert not project.store_path("A-10").exists()

    page.goto(half)
    page.get_by_text("Ingested since, by another run.").wait_for()
    assert page.get_by_role("link", name="Open").count() == 3
    assert page.get_by_role("link", name="Try again with µm per pixel …").count() == 1
    page.get_by_role("button", name="Runs", exact=True).click()
    swatch = page.get_by_role("row", name=re.compile("2 of 4 done")).locator(".gs-swatch")
    assert swatch.evaluate("element => getComputedStyle(element).backgroundColor") == "rgb(178, 106, 0)"
    page.screenshot(path=ARTIFACTS / "runs.png", full_page=True)
