"""Annotations as a pathologist draws them, in a real browser against the running app."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.ledger import PROJECT_LOG, find_ledger, open_ledger
from pipeline.project import Project
from pipeline.review import annotations_of, save
from pipeline.study import verify_log
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK, click, drag
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.started_app import GEMSLIDE, StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

READY = f"{HOOK} && {HOOK}.isSettled() && {HOOK}.annotations.isSettled()"
SAVED = f"{HOOK}.annotations.isSaved()"


@pytest.fixture(scope="module")
def drawn_on(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("drawn-on"))


@pytest.fixture(scope="module")
def running(drawn_on: Project) -> Iterator[StartedApp]:
    with started_app(drawn_on.root, drawn_on.root / "server.log") as app:
        yield app


@pytest.fixture
def app(running: StartedApp, drawn_on: Project) -> StartedApp:
    """The app, with no annotations left on its slide."""
    wipe(drawn_on)
    return running


def wipe(project: Project) -> None:
    ledger = open_ledger(project)
    save(
        ledger, SLIDE_ID, [annotation.draft(is_deleted=True) for annotation in annotations_of(ledger, SLIDE_ID)], "test"
    )
    ledger.database.close()


def open_slide(page: Page, app: StartedApp) -> None:
    page.goto(f"{app.url}/?slide={SLIDE_ID}")
    wait_for(page, READY)


def hook(page: Page, call: str) -> Any:
    return page.evaluate(f"{HOOK}.annotations.{call}")


def draw_square(page: Page, x_px0: float = 500, y_px0: float = 400) -> None:
    """Drag a rectangle with the selected tool."""
    drag(page, (x_px0, y_px0), (x_px0 + 200, y_px0 + 200))


def stored(project: Project) -> list[Any]:
    ledger = find_ledger(project)
    assert ledger
    annotations = annotations_of(ledger, SLIDE_ID)
    assert not verify_log(ledger.database, PROJECT_LOG).findings
    ledger.database.close()
    return annotations


def test_a_polygon_is_drawn_and_classed_and_is_there_after_a_reload(
    page: Page, app: StartedApp, drawn_on: Project
) -> None:
    open_slide(page, app)
    page.keyboard.press("a")
    page.keyboard.press("g")
    for place in ((500, 400), (900, 400), (900, 800)):
        click(page, *place)
    click(page, 500, 800, click_count=2)
    page.get_by_label("Class", exact=True).last.select_option("New class…")
    page.get_by_role("textbox", name="New class").fill("carcinoma")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Note").fill("ask a colleague")
    page.get_by_role("textbox", name="Note").blur()
    wait_for(page, f"{SAVED} && {HOOK}.annotations.total() === 1")
    page.screenshot(path=ARTIFACTS / "annotating.png")

    page.reload()
    wait_for(page, f"{READY} && {HOOK}.annotations.total() === 1")

    page.keyboard.press("a")
    click(page, 700, 600)
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1")
    assert "drawn by" in page.locator(".annotations .about").inner_text()
    (annotation,) = stored(drawn_on)
    assert (annotation.class_name, annotation.note, annotation.kind) == ("carcinoma", "ask a colleague", "polygon")
    assert annotation.shape.area == pytest.approx(400 * 400, rel=0.03)


def test_every_tool_draws_and_every_step_is_taken_back(page: Page, app: StartedApp, drawn_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("a")
    page.keyboard.press("r")
    draw_square(page)
    page.keyboard.press("e")
    click(page, 800, 400)
    click(page, 1000, 500)
    page.keyboard.press("w")
    drag(page, (600, 800), (800, 800), (800, 1000), (600, 900))
    page.keyboard.press("d")
    click(page, 1200, 900)
    page.keyboard.press("s")
    page.keyboard.press("Escape")  # the point just drawn is still selected
    wait_for(page, f"{HOOK}.annotations.chosen().length === 0")
    click(page, 600, 500)
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1")
    drag(page, (700, 600), (800, 700))  # a corner
    wait_for(page, SAVED)
    assert sorted(annotation.kind for annotation in stored(drawn_on)) == ["ellipse", "freehand", "point", "polygon"]
    assert max(annotation.shape.area for annotation in stored(drawn_on)) == pytest.approx(
        200 * 200 + 100 * 200, rel=0.05
    )

    for _ in range(5):
        page.keyboard.press("Control+z")
    wait_for(page, f"{SAVED} && {HOOK}.annotations.shown().length === 0")
    assert stored(drawn_on) == []
    page.keyboard.press("Control+Shift+Z")
    wait_for(page, f"{SAVED} && {HOOK}.annotations.shown().length === 1")
    assert [annotation.kind for annotation in stored(drawn_on)] == ["rectangle"]


def test_areas_are_split_and_joined(page: Page, app: StartedApp, drawn_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("a")
    page.keyboard.press("r")
    draw_square(page)
    page.keyboard.press("x")
    drag(page, (600, 350), (600, 650))
    wait_for(page, f"{HOOK}.annotations.chosen().length === 2 && {SAVED}")
    assert [annotation.shape.area for annotation in stored(drawn_on)] == pytest.approx([20_000, 20_000], rel=0.1)
    page.keyboard.press("j")
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1 && {SAVED}")
    (whole,) = stored(drawn_on)
    assert whole.shape.area == pytest.approx(40_000, rel=0.05)


def test_a_keyboard_alone_draws_and_changes(page: Page, app: StartedApp, drawn_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("4")
    wait_for(page, READY)
    page.keyboard.press("a")
    page.keyboard.press("g")
    for arrow in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press("Enter")
        page.keyboard.press(arrow)
        wait_for(page, f"{HOOK}.isSettled()")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    wait_for(page, f"{HOOK}.annotations.chosen().length === 1 && {SAVED}")
    (drawn,) = stored(drawn_on)
    page.keyboard.press("s")
    page.keyboard.press("PageDown")
    page.keyboard.press("Alt+Shift+ArrowLeft")
    wait_for(page, SAVED)
    (changed,) = stored(drawn_on)
    assert (len(drawn.shape.exterior.coords), changed.revision) == (5, 2)
    assert changed.shape.bounds[0] < drawn.shape.bounds[0] or changed.shape.area != drawn.shape.area


def test_turned_and_mirrored_a_shape_lies_where_it_was_drawn(page: Page, app: StartedApp, drawn_on: Project) -> None:
    open_slide(page, app)
    page.keyboard.press("t")
    page.keyboard.press("v")
    wait_for(page, READY)
    page.keyboard.press("a")
    page.keyboard.press("r")
    draw_square(page, 700, 500)
    wait_for(page, f"{SAVED} && {HOOK}.annotations.shown().length === 1")
    (annotation,) = stored(drawn_on)
    assert annotation.shape.bounds == pytest.approx((700, 500, 900, 700), abs=6)


def test_what_is_drawn_while_the_server_is_away_is_there_when_it_is_back(
    page: Page, drawn_on: Project, tmp_path: Path
) -> None:
    wipe(drawn_on)
    with started_app(drawn_on.root, tmp_path / "first.log") as first:
        open_slide(page, first)
        page.keyboard.press("a")
        page.keyboard.press("r")
    draw_square(page)
    draw_square(page, 900)
    wait_for(page, f"{HOOK}.annotations.state().includes('2 not saved yet')")

    command = [GEMSLIDE, "app", "--project", drawn_on.root, "--port", first.port]
    with started_app(drawn_on.root, tmp_path / "second.log", command=command):
        wait_for(page, f"{SAVED} && {HOOK}.annotations.total() === 2", seconds=45)
    assert len(stored(drawn_on)) == 2


def test_what_was_not_saved_is_sent_after_a_reload(page: Page, app: StartedApp, drawn_on: Project) -> None:
    open_slide(page, app)
    page.route("**/annotations/*", lambda route: route.abort())
    page.keyboard.press("a")
    page.keyboard.press("r")
    draw_square(page)
    wait_for(page, f"{HOOK}.annotations.state().includes('not saved yet')")
    assert stored(drawn_on) == []
    page.unroute("**/annotations/*")

    page.reload()

    wait_for(page, f"{READY} && {SAVED} && {HOOK}.annotations.total() === 1")
    assert len(stored(drawn_on)) == 1


def test_two_tabs_see_each_other_and_no_change_is_lost(
    page: Page, context: BrowserContext, app: StartedApp, drawn_on: Project
) -> None:
    other = context.new_page()
    for tab in (page, other):
        open_slide(tab, app)
    page.bring_to_front()
    page.keyboard.press("a")
    page.keyboard.press("r")
    draw_square(page)
    wait_for(other, f"{HOOK}.annotations.shown().length === 1")

    # The other tab does not learn of the change, and edits the same annotation.
    other.bring_to_front()
    other.keyboard.press("a")
    click(other, 600, 500)
    wait_for(other, f"{HOOK}.annotations.chosen().length === 1")
    other.route("**/changes?*", lambda route: route.abort())
    page.bring_to_front()
    page.get_by_role("textbox", name="Note").fill("one")
    page.get_by_role("textbox", name="Note").blur()
    wait_for(page, SAVED)
    other.bring_to_front()
    other.get_by_role("textbox", name="Note").fill("two")
    other.get_by_role("textbox", name="Note").blur()
    wait_for(other, f"{SAVED} && {HOOK}.annotations.said().includes('both kept')")
    assert sorted(annotation.note for annotation in stored(drawn_on)) == ["one", "two"]


def test_a_file_of_qupath_is_imported_and_exported(
    page: Page, app: StartedApp, drawn_on: Project, tmp_path: Path
) -> None:
    ring = [[500, 400], [900, 400], [900, 800], [500, 400]]
    feature = {
        "type": "Feature", "properties": {"classification": {"name": "stroma"}},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }  # fmt: skip
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    open_slide(page, app)
    page.keyboard.press("a")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import").click()
    chooser.value.set_files(tmp_path / "a.geojson")
    wait_for(page, f"{HOOK}.annotations.total() === 1 && {HOOK}.annotations.said().includes('1 imported')")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert exported["features"][0]["properties"]["classification"]["name"] == "stroma"
    assert exported["features"][0]["geometry"]["coordinates"] == [ring]


def test_what_the_server_refuses_is_said_and_kept(page: Page, app: StartedApp) -> None:
    open_slide(page, app)
    page.keyboard.press("a")
    page.keyboard.press("r")
    refusal = {"code": "forbidden", "message": "You may not annotate slides."}
    page.route("**/annotations/*", lambda route: route.fulfill(status=403, json=refusal))
    draw_square(page)
    wait_for(page, f"{HOOK}.annotations.state().includes('You may not annotate slides.')")
    assert "1 not saved yet, kept in this browser" in hook(page, "state()")
    assert socket.gethostname() not in hook(page, "state()")
