"""A pathologist's day in a real browser: opens a case from the worklist, finds and judges its hotspots by keyboard,
lowers the threshold, probes, measures, draws, disagrees and signs, reads a slide unassisted, finds it all in the log,
and returns by the link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.ledger.opening import open_ledger
from pipeline.ledger.rows import PROJECT_LOG, slide_subject
from pipeline.project import Project
from pipeline.review import annotations_of
from pipeline.review.verify import verify_reviews
from pipeline.study.proof.verify import verify_log
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK, click
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.small_reading import STUDY, make_reading_study, of_study
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response, WebSocket


class Heard:
    """Everything sent to the browser from a given moment on."""

    def __init__(self, page: Page) -> None:
        self.said: list[bytes] = []
        self.urls: list[str] = []
        self.is_on = False
        page.on("websocket", self._listen)
        page.on("response", self._answered)

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: self._add(frame if isinstance(frame, bytes) else frame.encode()))

    def _answered(self, response: Response) -> None:
        if self.is_on:
            self.urls.append(response.url)

    def _add(self, frame: bytes) -> None:
        if self.is_on:
            self.said.append(frame)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Project with one slide, to be read unassisted and, two weeks later, assisted."""
    (tmp_path / "small").mkdir()
    root = tmp_path / "study"
    root.mkdir()
    small = make_project(tmp_path / "small")
    make_reading_study(small, root, slides=1, readers=["r1"], arms=["unassisted", "assisted"])
    return root


def test_a_case_is_judged_read_signed_found_in_the_log_and_come_back_to(page: Page, root: Path) -> None:
    heard = Heard(page)
    with started_app(root, root / "server.log") as app:
        page.goto(app.url)
        page.get_by_role("link", name=SLIDE_ID).click()
        judge_a_hotspot(page)
        lower_the_threshold_and_probe(page)
        measure(page)
        draw_and_class(page)
        disagree(page)
        come_back(page)
        link = read_without_help(page, app.url, heard)
        sign_and_find_it(page, link)
    with open_ledger(Project(root)) as ledger:
        row = of_study(ledger).row("r1", 1, 1)
        assert (row.state, row.seconds > 0) == ("signed", True)
        assert of_study(ledger).answers("r1", 1, 1)["remarks"] == "small biopsy"
        assert ledger.history(STUDY, slide_subject(SLIDE_ID))[-1].action == "slide looked at"
        actions = [entry.action for entry in ledger.history(PROJECT_LOG, slide_subject(SLIDE_ID))]
        assert {"hotspot seen", "hotspot accepted", "slide reviewed", "slide looked at"} <= set(actions)
        drawn = {annotation.kind: annotation.class_name for annotation in annotations_of(ledger, SLIDE_ID)}
        assert drawn == {"ruler": None, "polygon": "carcinoma"}
        for study_id in (STUDY, PROJECT_LOG):
            assert not verify_log(ledger.database, study_id).findings
            assert not verify_reviews(ledger.database, study_id)
    log_text = (root / "server.log").read_text()
    assert not [line for line in log_text.splitlines() if "Traceback" in line or "ERROR" in line], log_text


def judge_a_hotspot(page: Page) -> None:
    """Go to the first hotspot and accept it by keyboard; the list then shows this."""
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    page.keyboard.press("n")
    wait_for(page, f"{HOOK}.currentHotspot() === 0 && {HOOK}.isSettled()")
    page.keyboard.press("y")
    page.get_by_text("1 of 2 judged").wait_for()
    rows = page.get_by_role("list", name="Hotspots, highest score first").get_by_role("listitem")
    assert rows.count() == 2
    assert "accepted" in rows.nth(0).inner_text()
    rows.nth(1).get_by_role("button", name="Reject hotspot 2").click()
    page.get_by_text("2 of 2 judged").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("1 of 2 judged, 2 seen").wait_for()
    rows.nth(0).get_by_role("button", name="1. positive 0.97").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for(page, f"{HOOK}.currentHotspot() === 1 && {HOOK}.isSettled()")
    page.screenshot(path=ARTIFACTS / "hotspots.png")
    page.reload()
    page.get_by_text("1 of 2 judged, 2 seen").wait_for()


def lower_the_threshold_and_probe(page: Page) -> None:
    """Probe the model's value at the centre of the screen, on the hotspot, by keyboard alone."""
    threshold = page.get_by_label("Threshold", exact=True)
    before = float(threshold.input_value())
    page.keyboard.press("n")
    wait_for(page, f"{HOOK}.currentHotspot() === 0 && {HOOK}.isSettled()")
    for _ in range(3):
        page.keyboard.press("[")
    assert float(threshold.input_value()) == pytest.approx(before - 0.15)
    page.keyboard.press("Enter")
    page.locator(".probe").get_by_text("P(positive) = 0.97", exact=True).wait_for()


def measure(page: Page) -> None:
    page.keyboard.press("0")
    wait_for(page, f"{HOOK}.isSettled()")
    page.keyboard.press("m")
    click(page, 300, 400)
    click(page, 700, 700)
    (length,) = page.evaluate(f"{HOOK}.measured()")
    assert float(length.removesuffix(" µm")) == pytest.approx(250, abs=3)
    page.keyboard.press("Escape")


def draw_and_class(page: Page) -> None:
    page.keyboard.press("a")
    page.keyboard.press("g")
    for place in ((500, 400), (900, 400), (900, 800)):
        click(page, *place)
    click(page, 500, 800, click_count=2)
    page.get_by_label("Class", exact=True).last.select_option("New class…")
    page.get_by_role("textbox", name="New class").fill("carcinoma")
    page.keyboard.press("Enter")
    wait_for(page, f"{HOOK}.annotations.isSaved() && {HOOK}.annotations.total() === 1")
    page.screenshot(path=ARTIFACTS / "story-drawn.png")
    page.keyboard.press("a")


def come_back(page: Page) -> None:
    """Return by a saved link: the view, threshold, drawings and judgements are as they were left."""
    page.keyboard.press("4")  # 10x, a pixel of the screen for each µm
    wait_for(page, f"/at=[^&]*,1(&|$)/.test(location.search) && {HOOK}.isSettled()")
    left, link = page.evaluate(f"{HOOK}.placement()"), page.url
    threshold = page.get_by_label("Threshold", exact=True).input_value()
    page.get_by_role("button", name="Worklist").click()
    page.get_by_role("link", name=SLIDE_ID).wait_for()
    page.goto(link)
    wait_for(page, f"{HOOK} && {HOOK}.isSettled() && {HOOK}.annotations.total() === 1")
    assert page.evaluate(f"{HOOK}.placement()") == pytest.approx(left, rel=1e-3, abs=1)
    assert page.get_by_label("Threshold", exact=True).input_value() == threshold
    page.get_by_text("1 of 2 judged, 2 seen").wait_for()
    page.get_by_role("button", name="Reviews (1)").wait_for()


def disagree(page: Page) -> None:
    page.get_by_role("button", name="Review").click()
    page.get_by_text("Disagree", exact=True).click()
    page.get_by_label("Your label").fill("benign")
    page.get_by_label("Comment").press_sequentially("crush artefact")
    page.reload()  # at once, with the field still in hand
    page.get_by_role("button", name="Review").click()
    page.get_by_text("Still to answer: name.").wait_for()
    assert page.get_by_label("Comment").input_value() == "crush artefact"
    page.get_by_label("Sign with your name").fill("Ada")
    page.get_by_text("Signing locks: verdict: Disagree; label: benign; comment: crush artefact; name: Ada.").wait_for()
    page.screenshot(path=ARTIFACTS / "review-typed.png")
    page.get_by_role("button", name="Sign", exact=True).click()
    page.get_by_role("button", name="Reviews (1)").wait_for()
    page.get_by_role("cell", name="crush artefact").wait_for()
    page.screenshot(path=ARTIFACTS / "review.png")


def read_without_help(page: Page, url: str, heard: Heard) -> str:
    """Answer the questions while nothing of the model reaches the browser. Return the reading's link."""
    page.goto(f"{url}/?study={STUDY}&view=readings")
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_label("You read as").click()
    page.get_by_role("option", name="r1").click()
    page.get_by_role("button", name="Start reading").wait_for()
    heard.is_on = True
    page.get_by_role("button", name="Start reading").click()
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    page.get_by_text("malignant", exact=True).click()
    page.get_by_label("How sure are you?").fill("70")
    page.get_by_label("Remarks").fill("small biopsy")
    page.get_by_text("session 1, slide 1 of 1").click()  # leave the field
    page.get_by_text("remarks: small biopsy").wait_for()
    page.keyboard.press("4")
    wait_for(page, f"location.search.includes('at=') && {HOOK}.isSettled()")
    page.screenshot(path=ARTIFACTS / "reading.png")

    overlay = f"/overlays/{SLIDE_ID}/{MODEL_ID}/1.png"
    refused = page.evaluate("url => fetch(url).then((answer) => answer.status)", overlay)
    assert refused == 403
    heard.is_on = False
    assert [frame for frame in heard.said if b"How sure are you?" in frame], "frames can be read"
    assert not [frame for frame in heard.said if MODEL_ID.encode() in frame or b"/overlays/" in frame]
    assert {url.split("/")[3].split("?")[0] for url in heard.urls} >= {"tiles", "coverage"}
    assert not [url for url in heard.urls if "/hotspots/" in url or "/crops/" in url]

    link = page.url
    page.goto(f"{url}/?slide={SLIDE_ID}")
    page.get_by_text("has not signed that reading").wait_for()
    page.goto(link)
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    page.get_by_text("remarks: small biopsy").wait_for()
    assert page.get_by_role("radio", name="malignant").is_checked()
    return link


def sign_and_find_it(page: Page, link: str) -> None:
    page.get_by_role("button", name="Sign", exact=True).click()
    page.get_by_text("Washout: session 2 (assisted) of r1 begins on 20").wait_for()
    page.screenshot(path=ARTIFACTS / "washout.png")
    page.get_by_text("Signed readings (1)").click()
    page.get_by_role("table", name="Signed readings").get_by_role("link", name=SLIDE_ID).click()
    page.get_by_text("has not signed that reading").wait_for()  # it must be read once more
    page.screenshot(path=ARTIFACTS / "reading-washout.png")
    page.go_back()
    page.get_by_text("Washout: session 2").wait_for()
    wait_for(page, "document.activeElement.matches('a.gs-go[href*=study_slide]')")  # on the row that was left
    page.goto(link)
    page.get_by_text("Washout: session 2").wait_for()
