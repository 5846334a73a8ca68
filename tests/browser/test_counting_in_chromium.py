"""Counts, measurements, bookmarks and the table, as a pathologist uses them in a real browser."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from shapely.geometry import box

from pipeline.ledger import find_ledger, open_ledger
from pipeline.project import Project
from pipeline.review import Annotation, Draft, annotations_of, save
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK, click, drag
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAVED = f"{HOOK}.annotations.isSaved()"
WIDTH_OF_IMAGE = """image => new Promise(
    done => image.complete ? done(image.naturalWidth) : (image.onload = () => done(image.naturalWidth))
)"""
READY = f"{HOOK} && {HOOK}.isSettled() && {HOOK}.annotations.isSettled()"


@pytest.fixture
def counted_on(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("counted"))


@pytest.fixture
def app(counted_on: Project) -> Iterator[StartedApp]:
    with started_app(counted_on.root, counted_on.root / "server.log") as app:
        yield app


def open_slide(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/?slide={SLIDE_ID}")
    wait_for(page, READY)


def stored(project: Project) -> list[Annotation]:
    ledger = find_ledger(project)
    assert ledger
    try:
        return annotations_of(ledger, SLIDE_ID)
    finally:
        ledger.database.close()


def place_count_in_an_area(page: Page) -> None:
    for _ in range(3):
        page.keyboard.press("c")
    page.get_by_text("Count in an area: drag around it").wait_for()
    drag(page, (400, 400), (900, 400), (900, 900), (400, 900), (400, 410))
    page.get_by_text("New count").first.wait_for()


def test_two_classes_are_counted_with_shares_and_are_there_after_a_kill(
    page: Page, app: StartedApp, counted_on: Project
) -> None:
    open_slide(page, app)
    place_count_in_an_area(page)
    for index in range(6):
        page.keyboard.press("2" if index % 3 == 2 else "1")
        click(page, 500 + 50 * index, 600)
    click(page, 1500, 200)  # outside the area
    page.get_by_text("Outside the counted area").first.wait_for()
    assert page.evaluate(f"{HOOK}.counted()") == 6
    wait_for(page, SAVED)

    os.kill(app.process.pid, signal.SIGKILL)
    app.process.wait()

    # Everything that the page called saved is in the ledger.
    kinds = [annotation.kind for annotation in stored(counted_on)]
    assert (kinds.count("count"), kinds.count("mark")) == (1, 6)
    with started_app(counted_on.root, counted_on.root / "again.log") as again:
        page.goto(f"{again.url}/?slide={SLIDE_ID}")
        wait_for(page, READY)
        page.locator("summary", has_text="Counts").click()
        page.get_by_role("button", name="Count 1: negative 2, positive 4").click()
        page.get_by_role("row", name="positive 95 % CI").get_by_text("66.7 %").wait_for()
        page.screenshot(path=ARTIFACTS / "counted.png")


def test_what_was_measured_is_undone_after_a_reload(page: Page, app: StartedApp, counted_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("m")
    click(page, 300, 400)
    click(page, 700, 700)
    page.keyboard.press("m")  # pressed again, the tool stays
    assert page.evaluate(f"{HOOK}.inHand()") == "ruler"
    wait_for(page, SAVED)
    page.reload()
    wait_for(page, READY)
    assert page.evaluate(f"{HOOK}.measured()") == ["250 µm"]

    page.keyboard.press("Control+z")

    wait_for(page, f"{HOOK}.measured().length === 0 && {SAVED}")
    assert stored(counted_on) == []


def test_what_is_drawn_beyond_the_slide_is_clipped(page: Page, app: StartedApp, counted_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("-")  # beside the slide, some of the screen is empty
    wait_for(page, READY)
    page.keyboard.press("a")
    page.keyboard.press("r")
    drag(page, (-40, 100), (100, 200), (200, 300))
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1 && {SAVED}")
    (drawn,) = stored(counted_on)
    assert drawn.shape.bounds[0] == 0
    assert drawn.shape.area == pytest.approx(200 * 200, rel=0.05)


def test_a_drawing_of_somebody_else_is_deleted_only_after_a_question_and_can_be_answered(
    page: Page, app: StartedApp, counted_on: Project
) -> None:
    ledger = open_ledger(counted_on)
    save(ledger, SLIDE_ID, [Draft(box(500, 500, 800, 800), class_name="tumour")], "grace (web app)")
    ledger.database.close()
    open_slide(page, app)
    page.keyboard.press("a")
    click(page, 650, 650)
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1")

    page.get_by_role("textbox", name="Answer").fill("Looks benign to me.")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.get_by_text("Looks benign to me.").wait_for()
    wait_for(page, SAVED)
    page.keyboard.press("Delete")
    question = page.get_by_role("dialog", name="Somebody else's annotation")
    question.get_by_text("drawn by grace (web app)").wait_for()
    page.screenshot(path=ARTIFACTS / "others-question.png")
    question.get_by_role("button", name="Cancel").click()
    assert sorted(annotation.kind for annotation in stored(counted_on)) == ["polygon", "reply"]
    click(page, 650, 650)
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1")
    page.keyboard.press("Delete")
    question.get_by_role("button", name="Delete", exact=True).click()
    wait_for(page, f"{SAVED} && {HOOK}.annotations.shown().length === 0")
    assert stored(counted_on) == []


def test_a_view_is_bookmarked_and_found_again(page: Page, app: StartedApp, counted_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("5")
    wait_for(page, READY)
    before = page.evaluate(f"{HOOK}.placement()")
    page.keyboard.press("*")
    wait_for(page, SAVED)
    page.get_by_role("textbox", name="Note of the bookmark").fill("edge of the tumour")
    page.get_by_role("textbox", name="Note of the bookmark").press("Enter")
    wait_for(page, SAVED)
    click(page, 900, 600)
    page.keyboard.press("0")
    wait_for(page, READY)
    page.reload()
    wait_for(page, READY)
    page.locator("summary", has_text="Bookmarks").click()
    wide = page.locator(".bookmarks img").evaluate(WIDTH_OF_IMAGE)
    assert wide == 112
    page.screenshot(path=ARTIFACTS / "bookmarks.png")
    page.get_by_role("button", name="Go to bookmark: edge of the tumour").click()
    wait_for(page, f"Math.abs({HOOK}.placement().left - {before['left']}) < 2 && {HOOK}.isSettled()")
    (bookmark,) = stored(counted_on)
    assert (bookmark.kind, bookmark.note) == ("bookmark", "edge of the tumour")


def test_the_table_lists_sorts_and_leads_to_an_annotation(page: Page, app: StartedApp, counted_on: Project) -> None:
    ledger = open_ledger(counted_on)
    areas = [
        Draft(box(100 * index, 100, 100 * index + 20 * index, 300), class_name=f"c{index}") for index in range(1, 6)
    ]
    save(ledger, SLIDE_ID, areas, "grace (web app)")
    ledger.database.close()
    open_slide(page, app)
    page.keyboard.press("#")
    page.get_by_text("5 annotations.").wait_for()
    page.get_by_role("button", name="Area", exact=True).last.click()
    rows = page.locator(".annotation-table tbody tr")
    wait_for(page, "true")
    rows.first.get_by_text("c5").wait_for()
    page.screenshot(path=ARTIFACTS / "table.png")
    page.locator(".annotation-table").get_by_role("searchbox").fill("c2")
    page.get_by_text("1 annotation.").wait_for()
    page.get_by_role("button", name="c2", exact=True).click()
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1")


def test_the_brush_adds_to_an_area_and_the_eraser_takes_away(page: Page, app: StartedApp, counted_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("a")
    page.keyboard.press("b")
    drag(page, (500, 600), (700, 600), (900, 650))
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1 && {SAVED}")
    (painted,) = stored(counted_on)
    drag(page, (700, 600), (700, 900))
    wait_for(page, f"{HOOK}.annotations.shown()[0].geometry.coordinates[0].some(([, y]) => y > 880) && {SAVED}")
    (larger,) = stored(counted_on)
    assert larger.shape.area > painted.shape.area
    page.keyboard.press("B")
    drag(page, (700, 800), (700, 950))
    wait_for(page, f"{HOOK}.annotations.shown()[0].geometry.coordinates[0].every(([, y]) => y < 880) && {SAVED}")
    (smaller,) = stored(counted_on)
    assert smaller.shape.area < larger.shape.area
    page.keyboard.press("Escape")
    page.keyboard.press("z")
    click(page, 1200, 700)
    wait_for(page, f"{HOOK}.annotations.shown().length === 2 && {SAVED}")


def test_beside_the_scan_nothing_is_counted_within_a_circle_that_leaves_it(page: Page, app: StartedApp) -> None:
    open_slide(page, app)
    for key in "0-":
        page.keyboard.press(key)
        wait_for(page, f"{HOOK}.isSettled()")
    page.keyboard.press("c")
    click(page, 200, 600)  # the circle of 1 mm² leaves the slide on the left
    click(page, -60, 600)
    page.get_by_text("Outside the scan: not counted.").first.wait_for()
    click(page, 60, 600)
    wait_for(page, f"{HOOK}.counted() === 1 && {SAVED}")
