"""A reader works through readings by keyboard alone; an adjudicator decides by chips; whoever signs out is told what is
signed, open and not saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.study.proof.verify import verify_log
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.progress import readings_of
from pipeline.study.reading.readings import Readings
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK
from tests.browser.signing_in import fill_and_sign_in
from tests.pathology_app.signed_in import hashed
from tests.pathology_app.small_project import make_project
from tests.pathology_app.small_reading import STAGES, STUDY, make_reading_study, of_study
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

DECIDED = "decided"
SIZES = ((1366, 768), (1920, 1080), (768, 1024))
DRAWN = "document.querySelector('.stApp') && !document.querySelector('[data-stale=true]')"
FOCUSED = """(() => {
    let active = document.activeElement;
    while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
    return active;
})()"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Project with a study for two readers, and another on whose slides two more readers differ."""
    root = tmp_path_factory.mktemp("study")
    make_reading_study(make_project(tmp_path_factory.mktemp("small")), root, slides=2, adjudicators=[])
    with open_ledger(Project(root)) as ledger:
        protocol = ledger.study(STUDY).frozen()
        protocol["reading"] |= {"readers": ["r3", "r4"], "adjudicators": ["chief"]}
        ledger.begin(DECIDED, protocol, "0" * 64, [NewSlide(name) for name in ("S-001", "S-002")], STAGES, actor="ada")
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts.append(Account(name="ada", roles=("admin",), password=hashed()))
        for name, reader in (("rae", "r1"), ("otto", "r2"), ("cleo", "chief")):
            roles = ("reviewer",) if reader == "chief" else ("reader",)
            accounts.append(Account(name=name, roles=roles, password=hashed(), reader=reader))  # type: ignore[arg-type]
    return root


@pytest.fixture
def ledger(root: Path) -> Iterator[Ledger]:
    with open_ledger(Project(root)) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def app(root: Path) -> Iterator[StartedApp]:
    log = root / "server.log"
    with started_app(root, log) as app:
        yield app
    assert not [line for line in log.read_text().splitlines() if "Traceback" in line or "ERROR" in line], (
        log.read_text()
    )


def sign_in(page: Page, app: StartedApp, name: str) -> None:
    page.goto(app.url)
    fill_and_sign_in(page, name)
    page.get_by_role("heading", name="Worklist").wait_for()
    # The field comes from the same module as the handling of links.
    page.get_by_placeholder("part of a slide's name").wait_for()
    wait_for(page, DRAWN)


def press(page: Page, *keys: str) -> int:
    for key in keys:
        page.keyboard.press(key)
    return len(keys)


def signs_are_on_screen(page: Page) -> None:
    """Check that Sign is on the screen in windows of several sizes, and take pictures."""
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        wait_for(page, f"innerWidth === {width}")
        page.screenshot(path=ARTIFACTS / f"reading-keys-{width}.png")
        box = page.get_by_role("button", name="Sign", exact=True).bounding_box()
        assert box is not None
        assert (box["y"] >= 0, box["y"] + box["height"] <= height) == (True, True), (width, height, box)
    page.set_viewport_size({"width": 1366, "height": 768})


def test_readings_are_read_answered_taken_back_and_signed_by_keys_alone(
    page: Page, app: StartedApp, ledger: Ledger
) -> None:
    sign_in(page, app, "rae")
    page.goto(f"{app.url}/?study={STUDY}&view=read")
    page.get_by_role("button", name="Start reading").wait_for()
    press(page, "n")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    page.get_by_text("Still to answer: diagnosis, sure.").wait_for()
    placed = page.evaluate(f"{HOOK}.placement()")
    wait_for(page, f"{FOCUSED}.matches('fieldset')")
    press(page, "3", "8", "0", "Enter", "n")
    page.get_by_text("Signing locks: diagnosis: malignant; sure: 80; artefact: no; remarks: –.").wait_for()
    wait_for(page, f"{FOCUSED}.matches('textarea')")
    assert page.evaluate(f"{HOOK}.placement()") == placed, "no digit has zoomed"
    press(page, "x", "Control+Enter")
    page.get_by_text("Signing in").wait_for()
    page.screenshot(path=ARTIFACTS / "reading-countdown.png")
    press(page, "Escape")
    page.get_by_text("Taken back: nothing is signed.").wait_for()
    press(page, "Control+Enter")
    page.get_by_text("Signing in").wait_for()
    page.reload()  # within the three seconds
    page.get_by_text("Signing locks: diagnosis: malignant; sure: 80; artefact: no; remarks: x.").wait_for()
    assert of_study(ledger).row("r1", 1, 1).state == "started"
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    signs_are_on_screen(page)
    press(page, "Escape", "4")
    wait_for(page, "location.search.includes('at=')")
    press(page, "?")
    page.get_by_text("in the questions: choose an option, yes or no").wait_for()
    press(page, "Escape", "q")
    wait_for(page, f"{FOCUSED}.closest('fieldset, .question') !== null")
    press(page, "Control+Enter")
    page.get_by_text("Signed: slide").wait_for()
    page.screenshot(path=ARTIFACTS / "reading-between.png")
    row = of_study(ledger).row("r1", 1, 1)
    assert (row.state, row.seconds > 0) == ("signed", True)
    assert of_study(ledger).row("r1", 1, 2).state == "open", "the clock stands between two slides"

    held: list[Route] = []
    page.route("**/tiles/**", lambda route: held.append(route))  # the slide is never drawn
    keys = press(page, "n")
    page.get_by_text("Still to answer: diagnosis, sure.").wait_for()
    keys += press(page, "1", "9", "Enter", "y", "Control+Enter")
    assert keys == 6
    page.get_by_text("Everything is signed").wait_for()
    assert of_study(ledger).row("r1", 1, 2).seconds == 0, "no time counts before the slide is on the screen"
    assert of_study(ledger).answers("r1", 1, 2) == {"diagnosis": "benign", "sure": 9, "artefact": True}
    assert held
    assert not verify_log(ledger.database, STUDY).findings


def test_an_adjudicator_takes_answers_by_chips_and_as_a_reader_gave_them(
    browser: Browser, app: StartedApp, ledger: Ledger
) -> None:
    readings = readings_of(ledger, DECIDED)
    assert readings is not None
    readings.begin(lay_out(readings.config, ["S-001", "S-002"], 3), actor="ada")
    for reader, diagnosis in (("r3", "benign"), ("r4", "malignant")):
        for _ in range(2):
            row = readings.next_of(reader)
            assert row is not None
            at = (reader, row.session, row.position)
            readings.start(*at)
            readings.give_all(*at, {"diagnosis": diagnosis, "sure": 80, "remarks": f"words of {reader}"})
            readings.sign(*at, seconds=60)
    assert len(readings.adjudicate("diagnosis", "unassisted", actor="ada")) == 2
    readings.start("chief", 1, 1)
    with browser.new_context(viewport={"width": 1366, "height": 768}) as context:
        decide(context.new_page(), app, readings)
    with browser.new_context(viewport={"width": 768, "height": 1024}, has_touch=True, color_scheme="dark") as context:
        readings.start("chief", 1, 2)
        decide_on_a_touch_screen(context.new_page(), app)
    assert not verify_log(ledger.database, DECIDED).findings


def decide(page: Page, app: StartedApp, readings: Readings) -> None:
    sign_in(page, app, "cleo")
    page.goto(f"{app.url}/?study={DECIDED}&view=read")
    page.get_by_text("Still to answer: diagnosis.").wait_for()
    assert page.get_by_label("How sure are you?").input_value() == "80"
    page.get_by_text("agreed, filled in").wait_for()
    assert readings.answers("chief", 1, 1) == {}, "nothing is stored before the adjudicator does something"
    page.get_by_role("button", name="as r4").click()
    page.get_by_text("Signing locks: diagnosis: malignant; sure: 80; artefact: –; remarks: –.").wait_for()
    page.get_by_role("button", name="r3: benign").click()
    page.get_by_text("Signing locks: diagnosis: benign; sure: 80;").wait_for()
    page.get_by_role("button", name="r4: words of r4").click()
    page.get_by_text("remarks: words of r4.").wait_for()
    assert page.get_by_role("button", name="r3: benign").get_attribute("aria-pressed") == "true"
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    page.screenshot(path=ARTIFACTS / "adjudication.png")
    signs_are_on_screen(page)
    page.get_by_role("button", name="Sign", exact=True).click()
    page.get_by_text("Signed: slide").wait_for()
    assert readings.answers("chief", 1, 1) == {"diagnosis": "benign", "sure": 80, "remarks": "words of r4"}


def decide_on_a_touch_screen(page: Page, app: StartedApp) -> None:
    sign_in(page, app, "cleo")
    page.goto(f"{app.url}/?study={DECIDED}&view=read")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    for height in (600, 1024):
        page.set_viewport_size({"width": 768, "height": height})
        box = page.get_by_role("button", name="Sign", exact=True).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= height
    stage, sheet = page.locator(".stage").bounding_box(), page.get_by_role("button", name="Questions: 1 of 4 answered")
    assert stage
    assert stage["height"] / 1024 >= 0.75, "the questions leave the slide its place"
    page.screenshot(path=ARTIFACTS / "reading-touch.png")
    sheet.tap()
    page.get_by_text("Still to answer: diagnosis.").wait_for()
    page.screenshot(path=ARTIFACTS / "reading-touch-questions.png")
    page.get_by_role("button", name="as r3").tap()
    page.get_by_text("Signing locks: diagnosis: benign; sure: 80;").wait_for()
    page.screenshot(path=ARTIFACTS / "reading-touch-decided.png")


def test_who_signs_out_is_told_what_is_signed_open_and_not_saved_and_nobody_else_is(
    page: Page, app: StartedApp
) -> None:
    url = app.url
    sign_in(page, app, "ada")
    link = page.get_by_role("link", name="S-002")
    link.click()
    page.get_by_role("button", name="Review").click()
    page.get_by_label("Comment").fill("half a sentence of ada")
    page.go_back()
    wait_for(page, "document.activeElement.matches('a.gs-go') && document.activeElement.textContent.includes('S-002')")
    page.screenshot(path=ARTIFACTS / "worklist-after-back.png")
    page.goto(f"{url}/sign-out")
    page.get_by_role("link", name="Review of slide S-002").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("You are signed out.").wait_for()

    sign_in(page, app, "otto")
    page.get_by_role("button", name="Next unread (2)").click()
    page.get_by_role("button", name="Start reading").click()
    page.get_by_text("malignant", exact=True).click()
    page.get_by_label("How sure are you?").fill("70")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Signed: slide").wait_for()
    page.keyboard.press("n")
    page.get_by_text("session 1, slide 2 of 2").wait_for()
    page.get_by_text("benign", exact=True).click()
    page.get_by_text("Saving your answers").wait_for(state="hidden")
    page.goto(f"{url}/sign-out")
    page.get_by_text("Nothing: the server has everything that you typed.").wait_for()
    for size, scheme in (((1366, 768), "light"), ((768, 1024), "dark")):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.screenshot(path=ARTIFACTS / f"sign-out-{size[0]}.png")
    text = page.locator("main").inner_text()
    assert "Signed since you signed in (1)" in text
    assert "session 1, slide 1 (S-00" in text
    assert "1 answer of 4 kept, not signed" in text
    assert "ada" not in text
    assert "Review" not in text
    page.get_by_role("link", name="1 answer of 4").click()
    page.get_by_role("button", name="Questions: 1 of 4 answered").click()
    page.get_by_role("radio", name="benign").wait_for()
    assert page.get_by_role("radio", name="benign").is_checked()
    page.goto(f"{url}/sign-out")
    page.get_by_role("button", name="Sign out").click()

    sign_in(page, app, "ada")
    page.goto(f"{url}/sign-out")
    page.get_by_role("link", name="Review of slide S-002").click()
    page.get_by_role("button", name="Review").click()
    assert page.get_by_label("Comment").input_value() == "half a sentence of ada"
