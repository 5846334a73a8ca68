"""A walk through a case as a pathologist does it, by keyboard alone and by touch alone.

Open, look, count in two classes, measure, annotate, bookmark, report, compare, and back to the list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.ledger import find_ledger
from pipeline.project import Project
from pipeline.review import annotations_of
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK, on_screen
from tests.pathology_app.small_case import make_cases
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

COMPARE = "window.__gemslideCompare"
FOCUSED = """(() => {
    let at = document.activeElement;
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    return at ? (at.getAttribute("aria-label") || at.textContent || at.placeholder || at.tagName).trim() : "";
})()"""
HIDDEN = """(() => {
    const wide = document.documentElement.scrollWidth - window.innerWidth;
    const roots = [...document.querySelectorAll("*")].map((each) => each.shadowRoot).filter(Boolean);
    const stage = roots.map((root) => root.querySelector(".stage")).find(Boolean);
    const body = stage?.closest(".body")?.getBoundingClientRect();
    return [wide, stage ? stage.getBoundingClientRect().height / window.innerHeight : 1,
        body ? window.innerHeight - body.bottom : 0];
})()"""
SCREENS: dict[str, dict[str, Any]] = {
    "notebook": {"viewport": {"width": 1366, "height": 768}},
    "desk-dark": {"viewport": {"width": 1920, "height": 1080}, "color_scheme": "dark"},
}
TABLETS: dict[str, dict[str, Any]] = {
    "tablet": {"viewport": {"width": 820, "height": 1180}, "has_touch": True},
    "tablet-dark": {"viewport": {"width": 1180, "height": 820}, "has_touch": True, "color_scheme": "dark"},
}


def once_in_the_tests(screens: dict[str, dict[str, Any]]) -> list[Any]:
    """Walks on the first of some screens; those on the others belong to the whole proof."""
    first, *others = screens
    return [first, *(pytest.param(name, marks=pytest.mark.prove) for name in others)]


@dataclass(frozen=True)
class App:
    url: str
    project: Project


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    project = make_cases(tmp_path_factory.mktemp("walk"))
    with started_app(project.root, project.root / "server.log") as started:
        yield App(started.url, project)
    log = (project.root / "server.log").read_text()
    assert "Traceback" not in log, log


@pytest.fixture
def walker(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Walker]:
    name: str = request.param
    with browser.new_context(**(SCREENS | TABLETS)[name]) as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield Walker(page, name)
        assert not errors


class Walker:
    """A person at a screen, who takes a picture after each step."""

    def __init__(self, page: Page, name: str) -> None:
        self.page = page
        self.name = name

    def opened(self, slide_id: str) -> None:
        wait_for(self.page, f"{HOOK} && {HOOK}.slideId() === '{slide_id}' && {HOOK}.isSettled()")
        wait_for(self.page, f"{HOOK}.annotations.isSettled() && {HOOK}.hasOverlay()")

    def saved(self) -> None:
        wait_for(self.page, f"{HOOK}.annotations.isSaved() && {HOOK}.isSettled()")

    def move(self, key: str) -> None:
        self.press(key)
        wait_for(self.page, f"{HOOK}.isSettled()")

    def look(self, step: str, *, least: float = 0.0) -> None:
        """Take a picture: no part of the screen is left empty, and the slide has at least a share of its height."""
        wide, share, below = self.page.evaluate(HIDDEN)
        assert 0 <= below <= 10, f"{step}: {below} px are left below the slide"
        assert wide <= 0, f"{step}: {wide} px wider than the screen"
        assert share >= least, f"{step}: the slide has {share:.3f} of the height"
        self.page.screenshot(path=ARTIFACTS / f"walk-{self.name}-{step}.png")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def tab_to(self, name: str, *, most: int = 120) -> None:
        """Press Tab until the focus is on a control."""
        seen = []
        for _ in range(most):
            self.press("Tab")
            seen.append(self.page.evaluate(FOCUSED))
            if seen[-1].startswith(name):
                return
        raise AssertionError(f"Tab does not lead to {name!r}: {seen}")

    def tap(self, name: str, *, exact: bool = True) -> None:
        self.page.get_by_role("button", name=name, exact=exact).first.tap()

    def tap_at(self, x_px0: float, y_px0: float) -> None:
        self.page.touchscreen.tap(*on_screen(self.page, x_px0, y_px0))


def stored(app: App, slide_id: str) -> list[tuple[str, str | None]]:
    """Kinds and classes of the slide's live annotations."""
    opened = find_ledger(app.project)
    assert opened
    with opened as ledger:
        return sorted((each.kind, each.class_name) for each in annotations_of(ledger, slide_id))


def read_report(walker: Walker, report: Page, expected: tuple[str, ...]) -> None:
    report.get_by_text("Research use only").first.wait_for()
    for words in expected:
        assert report.get_by_text(words).count(), words
    report.screenshot(path=ARTIFACTS / f"walk-{walker.name}-report.png", full_page=True)
    report.close()


def compare_and_return(walker: Walker) -> None:
    """Compare the slide before this one with its block, go back, and then to the list."""
    page = walker.page
    walker.press("Escape", ",", "x")
    wait_for(page, f"{COMPARE} && {COMPARE}.isSettled()")
    walker.press("w", "4")
    wait_for(page, f"{COMPARE}.active() === 1 && {COMPARE}.isSettled()")
    walker.look("compared")
    page.go_back()
    wait_for(page, f"{HOOK}.isSettled()")
    walker.press("Backspace")
    page.get_by_text(re.compile("^[12] of 6 slides")).wait_for()


@pytest.mark.parametrize("walker", once_in_the_tests(SCREENS), indirect=True)
def test_a_case_is_read_by_keyboard_alone(walker: Walker, app: App) -> None:
    page, own = walker.page, {"notebook": "C-2", "desk-dark": "C-1"}[walker.name]
    page.goto(app.url)
    page.get_by_role("link", name=own, exact=True).wait_for()
    page.get_by_role("searchbox").wait_for()
    walker.press("/")
    page.keyboard.type(own)
    page.get_by_text(re.compile("^[12] of 6 slides")).wait_for()
    walker.press("ArrowDown")
    walker.look("list")
    walker.press("Enter")
    walker.opened(own)
    walker.look("opened", least=0.86)

    for key in ("4", "Shift+ArrowRight", "Shift+ArrowLeft", "0"):
        walker.move(key)
    walker.press("c", "Enter", "1", "Enter", "2")
    for _ in range(2):
        walker.move("ArrowRight")
        walker.press("Enter")
    walker.saved()
    page.get_by_text("33.3 %").first.wait_for()
    walker.look("counted")
    walker.press("Escape", "Escape", "m", "Enter")
    walker.move("ArrowDown")
    walker.press("Enter")
    walker.saved()
    walker.look("measured")
    walker.press("a", "r", "Enter")
    walker.move("ArrowDown")
    walker.move("ArrowRight")
    walker.press("Enter")
    walker.saved()
    walker.look("annotated")
    walker.press("s", "Escape", "Escape", "*")
    walker.saved()
    walker.tab_to("Note of the bookmark")
    page.keyboard.type("edge")
    walker.press("Enter")
    walker.saved()
    walker.look("bookmarked")
    kinds = [kind for kind, _ in stored(app, own)]
    assert [kinds.count(kind) for kind in ("count", "mark", "ruler", "rectangle", "bookmark")] == [1, 3, 1, 1, 1]
    walker.tab_to("Report")
    with page.context.expect_page() as opening:
        walker.press("Enter")
    read_report(walker, opening.value, ("Count 1", "positive", "33.3 %", "edge"))

    compare_and_return(walker)


@pytest.mark.parametrize("walker", once_in_the_tests(TABLETS), indirect=True)
def test_a_case_is_read_by_touch_alone(walker: Walker, app: App) -> None:
    page, own = walker.page, {"tablet": "C-10", "tablet-dark": "B-1"}[walker.name]
    page.goto(f"{app.url}/?find={own}")
    page.get_by_role("link", name=own, exact=True).tap()
    walker.opened(own)
    walker.look("opened", least=0.75 if walker.name == "tablet" else 0.7)
    walker.tap("10×")
    wait_for(page, f"{HOOK}.isSettled()")
    walker.tap("Count")
    walker.tap_at(700, 500)
    walker.tap_at(710, 510)
    page.get_by_role("button", name="Count negative").or_(page.get_by_role("button", name="2", exact=True)).first.tap()
    walker.tap_at(690, 480)
    walker.saved()
    walker.look("counted")
    walker.tap("Count")
    walker.tap("Ruler")
    walker.tap_at(600, 450)
    walker.tap_at(660, 520)
    walker.saved()
    walker.tap("Ruler")
    walker.tap("Annotate")
    walker.tap("Rectangle")
    walker.tap_at(620, 400)
    walker.tap_at(700, 450)
    walker.saved()
    walker.look("annotated")
    walker.tap("Annotate")
    page.locator("summary", has_text="Bookmarks").tap()
    walker.tap("Bookmark this view")
    walker.saved()
    kinds = [kind for kind, _ in stored(app, own)]
    assert [kinds.count(kind) for kind in ("count", "mark", "ruler", "rectangle", "bookmark")] == [1, 2, 1, 1, 1]
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="Report", exact=True).tap()
    read_report(walker, opening.value, ("Count 1", "negative", "50.0 %"))
    walker.tap("Previous slide (,)")
    wait_for(page, f"{HOOK}.slideId() !== '{own}' && {HOOK}.isSettled()")
    walker.tap("Compare")
    wait_for(page, f"{COMPARE} && {COMPARE}.isSettled()")
    walker.look("compared")
    walker.tap("Worklist", exact=False)
    page.get_by_role("link", name=own, exact=True).wait_for()
