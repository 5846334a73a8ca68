"""The reading pages without a browser: what is asked, what is kept, and what a blinded reader is never sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from streamlit.testing.v1 import AppTest

from pathology_app.access.people import Person, Role
from pathology_app.app_pages import (
    reading,
    reading_answers,
    readings_overview,
    slide,
    slide_review,
    study_slide,
    worklist,
)
from pathology_app.study_ledger import close_study_ledgers
from pathology_app.tiles.cache import PROJECT_VARIABLE
from pipeline.project import Project
from pipeline.review.coverage import CoverageGrid, Look
from pipeline.review.coverage_store import save_looks
from pipeline.review.looking import Looking
from pipeline.review.slide_reviews import reviews_of
from pipeline.review.verify import verify_reviews
from pipeline.study.opening import actor_here, open_ledger
from pipeline.study.order import LEDGER_VARIABLE
from pipeline.study.rows import PROJECT_LOG, reading_subject
from pipeline.study.verify import verify_log
from tests.pathology_app.opened import hrefs, html_of, linked, open_page, said, viewer_data
from tests.pathology_app.small_project import MODEL_ID
from tests.pathology_app.small_reading import STUDY, make_reading_study, of_study, read_one
from tests.pathology_app.small_study import STUDY as OTHER
from tests.pathology_app.small_study import make_study

R1 = Person("ada", frozenset({Role.READER}), "r1")
COORDINATOR = Person("eve", frozenset({Role.COORDINATOR}))
UNSIGNED = f"r1 (web app, {actor_here()}, reader chosen without sign-in)"
READ = {"study": STUDY, "view": "read"}


@pytest.fixture
def made(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the study that the pages show, with what `[reading]` is to say."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)

    def make(**reading: Any) -> Path:
        make_reading_study(project, tmp_path, **reading)
        return tmp_path

    yield make
    close_study_ledgers()


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes somebody the one who looks; how people sign in is another part's."""

    def sign_in(person: Person) -> None:
        for module in (reading, reading_answers, readings_overview, slide, slide_review, study_slide, worklist):
            monkeypatch.setattr(module, "current_person", lambda: person)

    return sign_in


def texts(page: AppTest) -> str:
    kinds = ("markdown", "caption", "error", "warning", "info", "success")
    return "\n".join(said(element) for kind in kinds for element in page.get(kind))


def sent(page: AppTest) -> str:
    """All that the browser is sent."""
    everything = [texts(page), html_of(page), *(each.proto.json for each in page.get("bidi_component"))]
    everything += [str(each.proto) for kind in ("selectbox", "radio", "button", "expander") for each in page.get(kind)]
    return "\n".join(everything)


def press(page: AppTest, label: str) -> None:
    next(button for button in page.button if button.label == label).click().run()
    assert not page.exception


def answer(page: AppTest, diagnosis: str) -> None:
    next(radio for radio in page.radio if "What is it?" in radio.label).set_value(diagnosis).run()
    page.number_input[0].set_value(70.0).run()


def test_a_slide_is_read_answered_signed_and_the_next_one_comes(made: Any) -> None:
    root = made()
    page = open_page(**READ)
    assert "nobody has checked it" in texts(page)
    page.selectbox[0].set_value("r1").run()
    assert page.query_params["reader"] == "r1"
    press(page, "Start reading")
    first = viewer_data(page)["slide"]["slide_id"]
    assert page.query_params["reading"] == first
    sign = page.button(key="sign")
    assert sign.disabled
    assert "To be answered still: diagnosis, sure." in texts(page)

    answer(page, "atypical")
    answer(page, "malignant")
    page.text_area[0].set_value("small biopsy").run()
    assert "Signing locks: diagnosis: malignant; sure: 70; artefact: –; remarks: small biopsy." in texts(page)
    again = open_page(**READ, reader="r1")
    assert again.radio[0].value == "malignant", "kept as it was given"
    assert again.text_area[0].value == "small biopsy"

    with open_ledger(Project(root)) as ledger:
        looking = Looking(first, "r1", UNSIGNED, STUDY, "r1/1/1")
        save_looks(ledger, looking, CoverageGrid(128.0, 7, 5), [whole()], mpp0=0.5, seconds=1e6)
    page.button(key="sign").click().run()
    assert not page.exception
    assert viewer_data(page)["slide"]["slide_id"] != first
    assert "session 1, slide 2 of 3 · 1 of 3 signed" in texts(page)

    with open_ledger(Project(root)) as ledger:
        row = of_study(ledger).row("r1", 1, 1)
        assert (row.state, 0 < row.seconds < 60) == ("signed", True), "no longer than since its start"
        entries = ledger.history(STUDY, reading_subject("r1", 1, 1))
        given = ["answer given"] * 4
        assert [entry.action for entry in entries[1:]] == ["reading started", *given, "reading signed"]
        assert {entry.actor for entry in entries[1:]} == {UNSIGNED}
        assert json.loads(entries[-1].details)["seen"]["tissue_seen"] == {"2.5x": 1.0, "10x": 1.0, "20x": 0.0}
        assert not verify_log(ledger.database, STUDY).findings
        assert not verify_reviews(ledger.database, STUDY)


def whole() -> Look:
    return Look(((0, 0), (1800, 0), (1800, 1300), (0, 1300)), 1.0, 2.0)


def test_a_blinded_reader_is_sent_nothing_of_a_model_on_any_page(made: Any, signed_in: Any) -> None:
    root = made()
    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r2", "malignant")
        row = of_study(ledger).next_of("r1")
        of_study(ledger).start("r1", 1, 1)
    signed_in(R1)
    pages = {
        "reading": open_page(**READ),
        "slide": open_page(slide=row.slide_id),
        "slide with a model in its link": open_page(**{"slide": row.slide_id, "class": "positive"}),
        "worklist": open_page(),
        "gallery": open_page(view="gallery", sort="score"),
        "worklist by case": open_page(group="case", predicted="1", find="demo"),
        "slide of the study": open_page(study=STUDY, study_slide=row.slide_id),
        "readings": open_page(study=STUDY, view="readings"),
    }
    for name, page in pages.items():
        found = sent(page)
        assert MODEL_ID not in found, name
        assert not any(route in found for route in ("/overlays/", "/heatmaps/", "/exports/")), name
        assert "0.97" not in found, name
        assert "malignant" not in found or name == "reading", f"{name}: another reader's answer"
    assert viewer_data(pages["reading"])["hotspots"] == []
    assert viewer_data(pages["reading"])["hotspots_note"] is None
    assert "has not signed that reading" in texts(pages["slide"])
    assert "has not signed that reading" in texts(pages["slide of the study"])
    assert "r2" not in html_of(pages["readings"]), "how far others are is for who steers"
    assert open_page(find=MODEL_ID, predicted="1").caption[0].value.startswith("0 of 3")

    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r1", "benign")
    page = open_page(slide=row.slide_id)
    assert MODEL_ID in sent(page), "signed: now it may be compared"
    assert viewer_data(page)["hotspots"]


def test_an_assisted_reading_shows_the_studys_predictions(made: Any) -> None:
    root = made(readers=["r1"], arms=["assisted"])
    with open_ledger(Project(root)) as ledger:
        of_study(ledger).start("r1", 1, 1)
    data = viewer_data(open_page(**READ, reader="r1"))
    assert [layer["group"] for layer in data["layers"] if layer["is_first"]] == [MODEL_ID]
    assert len(data["hotspots"]) == 2
    assert data["hotspots_url"].endswith(f"/{MODEL_ID}.json?study={STUDY}&reader=r1&session=1&position=1")


def test_a_washout_says_when_to_come_back(made: Any) -> None:
    root = made(readers=["r1"], arms=["unassisted", "assisted"], washout_days=14.0, slides=1)
    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r1", "benign")
    page = open_page(**READ, reader="r1")
    assert "Washout: session 2 (assisted) of r1 begins on 20" in texts(page)
    assert "14 days" in texts(page)
    assert "start_reading" not in [button.key for button in page.button]
    assert "washout before session 2, assisted" in html_of(open_page(study=STUDY, view="readings"))

    earlier = "UPDATE reading SET signed_utc = '2020-01-01T00:00:00.000000Z' WHERE state = 'signed'"
    with open_ledger(Project(root)) as ledger, ledger.database.write() as connection:
        connection.execute(text(earlier))
    page = open_page(**READ, reader="r1")
    press(page, "Continue reading")
    assert viewer_data(page)["hotspots"]


def test_a_glass_slide_is_read_at_the_microscope(made: Any) -> None:
    root = made(readers=["r1"], arms=["glass", "digital"])
    with open_ledger(Project(root)) as ledger:
        of_study(ledger).start("r1", 1, 1)
    page = open_page(**READ, reader="r1")
    kinds = [each.proto.component_name for each in page.get("bidi_component")]
    assert not any("viewer" in kind for kind in kinds)
    assert any("clock" in kind for kind in kinds)
    answer(page, "benign")
    page.button(key="sign").click().run()
    assert "slide 2 of 3" in texts(page)


def test_where_readers_disagree_the_adjudicator_sees_their_answers_and_decides(made: Any) -> None:
    root = made()
    with open_ledger(Project(root)) as ledger:
        for reader in ("r1", "r2"):
            for _ in range(3):
                slide_id = of_study(ledger).next_of(reader).slide_id
                read_one(of_study(ledger), reader, "malignant" if (reader, slide_id) == ("r2", "S-002") else "benign")
    page = open_page(study=STUDY, view="readings")
    assert html_of(page).count("all signed") == 2
    page.text_input(key="adjudicate_name").input("Ada")
    page.text_input(key="adjudicate_why").input("all have read")
    press(page, "Start adjudication")
    assert "1 slide goes to the adjudicators." in texts(page)
    assert "chief" in html_of(page)

    page = open_page(**READ, reader="chief")
    press(page, "Start reading")
    assert viewer_data(page)["slide"]["slide_id"] == "S-002"
    table = html_of(page)
    assert "Answers of the readers" in table
    assert ("malignant" in table, "r1" in table, "r2" in table) == (True, True, True)
    assert MODEL_ID not in sent(page), "the arm allows no predictions"
    answer(page, "benign")
    page.button(key="sign").click().run()
    assert "All 1 readings of chief are signed." in texts(page)


def test_only_who_may_reads_steers_and_sees_others_answers(made: Any, signed_in: Any) -> None:
    root = made()
    with open_ledger(Project(root)) as ledger:
        slide_id = read_one(of_study(ledger), "r1", "atypical")
        while of_study(ledger).next_of("r2").slide_id != slide_id:
            read_one(of_study(ledger), "r2", "benign")
        read_one(of_study(ledger), "r2", "malignant")
    signed_in(COORDINATOR)
    assert "You may not read slides for a study" in texts(open_page(**READ))
    shown = html_of(open_page(study=STUDY, study_slide=slide_id))
    assert ("atypical" in shown, "malignant" in shown) == (True, True)
    signed_in(R1)
    shown = html_of(open_page(study=STUDY, study_slide=slide_id))
    assert ("atypical" in shown, "malignant" in shown) == (True, False)
    assert "reading signed" in shown, "it stands in the log"
    signed_in(Person("joe", frozenset({Role.READER}), None))
    assert "You are not among the readers" in texts(open_page(**READ))


def test_a_coordinator_lays_the_readings_out_once(made: Any) -> None:
    root = made(laid_out=False)
    assert "not laid out yet" in texts(open_page(**READ))
    page = open_page(study=STUDY, view="readings")
    page.text_input(key="lay_out_name").input("Ada")
    page.text_input(key="lay_out_why").input("all slides are done")
    press(page, "Lay out the readings of 3 slides")
    assert "The readings are laid out." in texts(page)
    with open_ledger(Project(root)) as ledger:
        assert of_study(ledger).next_of("r2").state == "open"
        entry = ledger.history(STUDY, reading_subject("r1", 1, 1))[0]
        assert (entry.actor, entry.why) == (f"Ada (web app, {actor_here()})", "all slides are done")


def test_the_worklist_leads_a_reader_to_the_next_unread(made: Any, signed_in: Any) -> None:
    root = made()
    with open_ledger(Project(root)) as ledger:
        signed = read_one(of_study(ledger), "r1", "benign")
    assert "next_unread" not in [button.key for button in open_page().button], "nobody is signed in"
    signed_in(R1)
    page = open_page()
    assert (f"to read ({STUDY})" in html_of(page), f"signed ({STUDY})" in html_of(page)) == (True, True)
    page.button(key="next_unread").click().run()
    assert page.query_params["view"] == "read"
    assert signed in linked(page)
    assert f"?study={STUDY}&study_slide={signed}" in hrefs(page)


def test_a_slide_is_reviewed_outside_studies_and_the_review_is_shown(made: Any) -> None:
    root = made()
    page = open_page(slide="S-001")
    press(page, "Sign")
    assert "a review needs its verdict" in texts(page)
    next(radio for radio in page.radio if radio.label == "Verdict").set_value("disagree")
    page.text_input(key="review S-001 0 label").input("benign")
    page.text_area(key="review S-001 0 comment").input("crush artefact")
    page.text_input(key="review S-001 0 name").input("Ada")
    press(page, "Sign")
    shown = html_of(open_page(slide="S-001"))
    assert ("Disagree" in shown, "crush artefact" in shown, "Ada" in shown) == (True, True, True)
    with open_ledger(Project(root)) as ledger:
        (found,) = reviews_of(ledger, "S-001")
        assert (found.model_id, found.class_name, found.label) == (MODEL_ID, "positive", "benign")
        assert len(found.predictions_sha256 or "") == 64
        assert not verify_reviews(ledger.database, PROJECT_LOG)


def test_a_study_without_readings_has_no_view_of_them(served_without: Path) -> None:
    page = open_page(study=OTHER)
    assert "Readings" not in str(page.get("button_group")[0].proto)
    assert "has no readings" in texts(open_page(study=OTHER, view="read"))
    assert open_page(study=OTHER, view="readings").query_params == {"study": OTHER}


@pytest.fixture
def served_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    make_study(tmp_path)
    yield tmp_path
    close_study_ledgers()
