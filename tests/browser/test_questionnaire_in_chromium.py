"""A reader's answers are signed as typed and survive a reload; a page that was open before a reading began soon stops
showing anything of a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.study.proof.verify import verify_log
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.browser.on_slide import HOOK
from tests.pathology_app.small_project import MODEL_ID, make_project
from tests.pathology_app.small_reading import STUDY, make_reading_study, of_study
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

READING = f"/?study={STUDY}&view=read&reader=r1"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Ledger of a study of two slides."""
    small, root = tmp_path / "small", tmp_path / "study"
    small.mkdir()
    root.mkdir()
    make_reading_study(make_project(small), root, slides=2, readers=["r1"], adjudicators=[])
    with open_ledger(Project(root)) as ledger:
        yield ledger


@pytest.fixture
def app(tmp_path: Path, ledger: Ledger) -> Iterator[StartedApp]:
    with started_app(tmp_path / "study", tmp_path / "server.log") as app:
        yield app
    log_text = (tmp_path / "server.log").read_text()
    assert not [line for line in log_text.splitlines() if "Traceback" in line or "ERROR" in line], log_text


def open_reading(page: Page, app: StartedApp, ledger: Ledger) -> None:
    of_study(ledger).start("r1", 1, 1)
    page.goto(app.url + READING)
    page.get_by_text("Still to answer: diagnosis, sure.").wait_for()


def next_slide(page: Page) -> None:
    page.get_by_role("button", name="Next").click()
    page.get_by_text("session 1, slide 2 of 2").wait_for()


def test_what_was_typed_and_not_left_survives_a_reload_and_is_signed(
    page: Page, app: StartedApp, ledger: Ledger
) -> None:
    open_reading(page, app, ledger)
    page.get_by_text("malignant", exact=True).click()
    page.get_by_label("How sure are you?").fill("70")
    page.get_by_label("Remarks").press_sequentially("small biopsy, half a sent")
    page.reload()  # at once, with the field still in hand
    page.get_by_text("remarks: small biopsy, half a sent.").wait_for()
    assert page.get_by_label("Remarks").input_value() == "small biopsy, half a sent"
    assert page.get_by_role("radio", name="malignant").is_checked()
    page.screenshot(path=ARTIFACTS / "questionnaire.png")

    page.get_by_label("Remarks").press_sequentially("ence")
    page.get_by_label("How sure are you?").fill("85")
    shown = page.get_by_text("Signing locks:").inner_text()
    page.get_by_role("button", name="Sign", exact=True).click()
    next_slide(page)
    signed = of_study(ledger).answers("r1", 1, 1)
    assert (signed["sure"], signed["diagnosis"]) == (85, "malignant")
    assert f"sure: {signed['sure']:g};" in shown
    assert f"remarks: {signed['remarks']}." in shown
    assert page.get_by_label("Remarks").input_value() == "", "the next reading begins empty"
    wait_for(page, "Object.keys(localStorage).filter((key) => key.startsWith('gemslide.reading')).length === 0")
    assert not verify_log(ledger.database, STUDY).findings


def test_a_signature_is_refused_where_another_tab_has_answered_meanwhile(
    page: Page, app: StartedApp, ledger: Ledger
) -> None:
    open_reading(page, app, ledger)
    page.get_by_text("benign", exact=True).click()
    page.get_by_label("How sure are you?").fill("40")
    page.get_by_text("Signing locks: diagnosis: benign; sure: 40").wait_for()
    wait_for(
        page, "![...document.querySelectorAll('*')].some((each) => each.shadowRoot?.textContent.includes('Saving'))"
    )
    of_study(ledger).give("r1", 1, 1, "artefact", True)
    page.get_by_role("button", name="Sign", exact=True).click()
    page.get_by_role("alert").get_by_text("changed elsewhere since it was shown here: artefact").wait_for()
    page.screenshot(path=ARTIFACTS / "questionnaire-changed.png")
    assert of_study(ledger).row("r1", 1, 1).state == "started"
    page.get_by_text("artefact: yes").wait_for()
    page.get_by_role("button", name="Sign", exact=True).click()
    next_slide(page)


def test_no_number_beyond_its_bounds_can_be_signed(page: Page, app: StartedApp, ledger: Ledger) -> None:
    open_reading(page, app, ledger)
    page.get_by_text("benign", exact=True).click()
    page.get_by_label("How sure are you?").fill("700")
    page.get_by_text("To correct: sure: a number from 0 to 100.").wait_for()
    assert page.get_by_role("button", name="Sign", exact=True).is_disabled()
    page.get_by_label("How sure are you?").fill("")
    page.get_by_text("Still to answer: sure.").wait_for()


def test_an_open_page_drops_what_it_shows_when_a_reading_begins(page: Page, app: StartedApp, ledger: Ledger) -> None:
    row = of_study(ledger).next_of("r1")
    assert row is not None
    page.goto(f"{app.url}/?slide={row.slide_id}")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    rows = page.get_by_role("list", name="Hotspots, highest score first").get_by_role("listitem")
    rows.first.wait_for()
    overlay = f"/overlays/{row.slide_id}/{MODEL_ID}/1.png"
    ask = "url => fetch(url).then((answer) => answer.status)"
    assert page.evaluate(ask, overlay) == 200
    of_study(ledger).start("r1", row.session, row.position)
    assert page.evaluate(ask, overlay) == 403, "no answer that the browser has kept"
    page.get_by_text("has not signed that reading").wait_for(timeout=15_000)
    rows.first.wait_for(state="detached")
    wait_for(page, f"{HOOK} && {HOOK}.isSettled()")
    assert MODEL_ID not in page.locator("body").inner_text()
    page.screenshot(path=ARTIFACTS / "blinded-meanwhile.png")
