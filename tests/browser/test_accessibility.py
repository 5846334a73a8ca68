"""Every page under axe-core: no finding of any level, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe

from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from tests.browser.conftest import Server, wait_for
from tests.browser.signing_in import fill_and_sign_in
from tests.pathology_app.signed_in import hashed
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.small_reading import STUDY, make_reading_study
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
PAGES = {
    "worklist": "",
    "gallery": "?view=gallery",
    "slide": f"?slide={SLIDE_ID}&model={MODEL_ID}",
    "side by side": f"?compare={SLIDE_ID},{SLIDE_ID}~",
    "studies": "?study",
    "check of the screen": "?check=screen",
    "no such page": "?page=nosuch",
}
RUN = "20260102T030405Z-abcdef"
"""A run from the command line: one slide done, one without its scale."""
OF_A_STUDY = {
    "study": (f"?study={STUDY}", "Slides finished"),
    "readings": (f"?study={STUDY}&view=readings", "Readers"),
    "runs": ("?page=runs", "Ingest slides …"),
    "new run": ("?page=runs&new=ingest", "Ingest slides"),
    "run": (f"?page=runs&run={RUN}", "1 of 2 done"),
    "slide tried again": (f"?page=runs&run={RUN}&again=S-9", "Try again: S-9"),
    "log": ("?log", "signed in"),
}
"""Link to each page, and a word on it."""
OF_A_READER = {
    "begin of a reading": (f"?study={STUDY}&view=read", "Start reading"),
    "reading": (f"?study={STUDY}&view=read", "R1"),
    "hidden study": (f"?study={STUDY}", "has not signed"),
    "hidden runs": ("?page=runs", "has not signed"),
}
"""The same, for a reader who still has slides to read unassisted."""
READY = {
    "slide": "window.__gemslide && window.__gemslide.isSettled() && window.__gemslide.hasOverlay()",
    "side by side": "window.__gemslideCompare && window.__gemslideCompare.isSettled()",
    "check of the screen": (
        "[...document.querySelectorAll('*')].some((at) => at.shadowRoot && at.shadowRoot.querySelector('.calibration'))"
    ),
}
DRAWN = (
    "document.querySelector('.stApp') && !document.querySelector('[data-stale=true]') && "
    "document.getAnimations().every(({ playState }) => playState !== 'running')"
)
"""The page is drawn, and nothing is still fading in with reduced contrast."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_finding(page: Page, server: Server, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{server.url}/{PAGES[name]}")
    page.get_by_text("Research use only").first.wait_for()
    wait_for(page, READY.get(name, DRAWN))

    assert findings(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_that_opens_on_a_slide_has_a_finding(page: Page, server: Server, scheme: Scheme) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{server.url}/{PAGES['slide']}")
    wait_for(page, f"{READY['slide']} && window.__gemslide.annotations.isSettled()")
    for key in ("c", "Enter", "1", "Enter", "2", "Enter", "m", "Enter", "Escape", "Escape", "*", "#"):
        page.keyboard.press(key)
    page.get_by_label("Table of annotations").get_by_role("table").wait_for()
    wait_for(page, "window.__gemslide.annotations.isSaved()")
    assert findings(page) == [], "counts, bookmarks and the table"
    page.keyboard.press("#")
    page.keyboard.press("a")
    assert findings(page) == [], "the tools"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert findings(page) == [], "the list of keys"
    page.keyboard.press("?")
    page.keyboard.press("x")
    wait_for(page, READY["side by side"])
    page.keyboard.press("s")
    page.get_by_role("button", name=SLIDE_ID).first.wait_for()
    assert findings(page) == [], "the choice of a slide"


@pytest.fixture(scope="module")
def study_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedApp]:
    """App with a study to read, and people who sign in."""
    root = tmp_path_factory.mktemp("study")
    make_reading_study(make_project(tmp_path_factory.mktemp("small")), root, slides=2, readers=["R1"])
    slides = [{"slide_id": SLIDE_ID, "status": "done"}, {"slide_id": "S-9", "status": "refused", "code": "missing_mpp"}]
    (root / "runs").mkdir(exist_ok=True)
    record = {"verb": "ingest", "outcome": "failed", "settings": {"mpp": None}, "slides": slides}
    (root / "runs" / f"{RUN}.json").write_text(json.dumps(record))
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts.append(Account(name="ada", roles=("admin",), password=hashed()))
        accounts.append(Account(name="rae", roles=("admin", "reader"), password=hashed(), reader="R1"))
    with started_app(root, root / "server.log") as app:
        yield app


@pytest.fixture(scope="module")
def ada(browser: Browser, study_app: StartedApp) -> Iterator[Page]:
    """Page of a person with all rights; the sign-in page has no finding either."""
    yield from signed_in(browser, study_app, "ada")


@pytest.fixture(scope="module")
def rae(browser: Browser, study_app: StartedApp) -> Iterator[Page]:
    """Page of a reader in the study."""
    yield from signed_in(browser, study_app, "rae")


def signed_in(browser: Browser, study_app: StartedApp, name: str) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto(study_app.url)
        page.get_by_role("heading", name="Sign in").wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert findings(page) == []
        fill_and_sign_in(page, name)
        page.get_by_role("heading", name="Worklist").wait_for()
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", OF_A_STUDY)
def test_no_page_of_a_study_has_a_finding(ada: Page, study_app: StartedApp, name: str, scheme: str) -> None:
    show(ada, study_app, *OF_A_STUDY[name], scheme)
    assert findings(ada) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", OF_A_READER)
def test_no_page_of_a_reader_has_a_finding(rae: Page, study_app: StartedApp, name: str, scheme: str) -> None:
    show(rae, study_app, *OF_A_READER[name], scheme)
    if name == "reading":
        begin = rae.get_by_role("button", name="Start reading")
        begin.or_(rae.locator(".gemslide-viewer")).first.wait_for()
        if begin.is_visible():
            begin.click()
        wait_for(rae, "window.__gemslide && window.__gemslide.isSettled()")
        rae.get_by_role("button", name="Sign", exact=True).wait_for()
    assert findings(rae) == []
    if name == "reading":
        rae.set_viewport_size({"width": 768, "height": 1024})  # the questions are on a sheet
        assert findings(rae) == []
        rae.get_by_role("button", name="answered").click()
        rae.get_by_text("Still to answer").wait_for()
        assert findings(rae) == []
        rae.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_on_which_one_signs_out_has_no_finding(rae: Page, study_app: StartedApp, scheme: Scheme) -> None:
    rae.emulate_media(color_scheme=scheme)
    rae.goto(f"{study_app.url}/sign-out")
    rae.get_by_role("button", name="Sign out").wait_for()
    assert findings(rae) == []


def show(page: Page, study_app: StartedApp, link: str, word: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{study_app.url}/{link}")
    page.get_by_text(word).first.wait_for()
    wait_for(page, DRAWN)


def test_a_finding_would_be_found(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_text("1 of 1 slide").wait_for()
    page.evaluate("document.body.append(document.createElement('input'))")
    assert any("label" in finding for finding in findings(page))


def findings(page: Page) -> list[str]:
    """Violations reported by axe-core, including those in shadow roots."""
    response = Axe().run(page).response
    return [
        f"{violation['id']} {node['target']}: {node.get('failureSummary', '')}"
        for violation in response["violations"]
        for node in violation["nodes"]
    ]
