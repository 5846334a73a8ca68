"""The reading pages without a browser: questions, stored answers, and data never sent to a blinded reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from sqlalchemy import text
from streamlit.testing.v1 import AppTest

from pathology_app.app_pages import declared as declared_pages
from pathology_app.app_pages import signed_form
from pathology_app.app_pages.log import page as access_log
from pathology_app.app_pages.runs import page as runs
from pathology_app.app_pages.slide import page as slide
from pathology_app.app_pages.slide import review as slide_review
from pathology_app.app_pages.studies import page as studies
from pathology_app.app_pages.studies import reading, reading_answers, reading_form
from pathology_app.app_pages.studies import readings as readings_overview
from pathology_app.app_pages.studies.acts import review_slide
from pathology_app.app_pages.worklist import page as worklist
from pathology_app.links.reading import ReadingLink
from pathology_app.people import actions as acting
from pathology_app.people import visitor
from pathology_app.people.person import ForbiddenError, Person, Role
from pathology_app.project.ledger import close_study_ledgers, current_study_ledger
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.readings.acts import sign_reading, start_reading
from pathology_app.readings.blinding import BlindedError, Shows, check_shown
from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import NewSlide
from pipeline.ledger.opening import actor_here, open_ledger
from pipeline.ledger.rows import PROJECT_LOG, reading_subject
from pipeline.project import Project
from pipeline.review.judging.coverage import CoverageGrid, Viewing
from pipeline.review.judging.coverage_store import save_looks
from pipeline.review.judging.seen_rule import SeenRule
from pipeline.review.judging.slides import SlideReview, add_review, reviews_of
from pipeline.review.rows.view_context import ViewContext
from pipeline.review.verify import verify_reviews
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.proof.verify import verify_log
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.progress import readings_of
from tests.pathology_app.opened import hrefs, html_of, linked, open_page, viewer_data, visible_text
from tests.pathology_app.small_attention import SLIDE_MODEL, write_small_attention
from tests.pathology_app.small_project import MODEL_ID
from tests.pathology_app.small_reading import STAGES, STUDY, make_reading_study, of_study, read_one
from tests.pathology_app.small_study import STUDY as OTHER
from tests.pathology_app.small_study import make_study

R1 = Person("ada", frozenset({Role.READER}), "r1")
COORDINATOR = Person("eve", frozenset({Role.COORDINATOR}))
UNSIGNED = f"r1 (web app, {actor_here()}, reader chosen without sign-in)"
READ = {"study": STUDY, "view": "read"}


@pytest.fixture
def made(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make the study that the pages show, with the given `[reading]` settings."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)

    def make(**reading: Any) -> Path:
        make_reading_study(project, tmp_path, **reading)
        return tmp_path

    yield make
    close_study_ledgers()


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a person the current viewer; sign-in is tested elsewhere."""

    def sign_in(person: Person) -> None:
        for module in (
            acting, access_log, declared_pages, visitor, reading, reading_answers, readings_overview, runs, slide,
            slide_review, studies, worklist,
        ):  # fmt: skip
            monkeypatch.setattr(module, "current_person", lambda: person)

    return sign_in


def texts(page: AppTest) -> str:
    kinds = ("markdown", "caption", "error", "warning", "info", "success")
    return "\n".join(visible_text(element) for kind in kinds for element in page.get(kind))


def sent(page: AppTest) -> str:
    """Everything sent to the browser."""
    everything = [texts(page), html_of(page), *(element.proto.json for element in page.get("bidi_component"))]
    everything += [
        str(element.proto) for kind in ("selectbox", "radio", "button", "expander") for element in page.get(kind)
    ]
    return "\n".join(everything)


def press(page: AppTest, label: str) -> None:
    next(button for button in page.button if button.label == label).click().run()
    assert not page.exception


def form_data(page: AppTest) -> dict[str, Any]:
    """Data passed to the signed form."""
    (form,) = (
        element for element in page.get("bidi_component") if element.proto.component_name.endswith("gemslide_questions")
    )
    data: dict[str, Any] = json.loads(form.proto.json)
    return data


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the form of the next run send an event, as a browser would: AppTest cannot act for a component."""

    def say(page: AppTest, what: str, **answers: Any) -> None:
        data = form_data(page)
        message = {"place": data["place"], "answers": answers}

        def form(data: dict[str, Any], *, key: str, on_keep: Any, on_sign: Any) -> None:
            monkeypatch.setattr(signed_form, "signed_form", original)
            {"keep": on_keep, "sign": on_sign}[what](message)
            st.rerun()

        original = signed_form.signed_form
        monkeypatch.setattr(signed_form, "signed_form", form)
        page.run()
        assert not page.exception

    return say


def test_a_slide_is_read_answered_signed_and_the_next_one_comes(made: Any, browser: Any) -> None:
    root = made()
    page = open_page(**READ)
    assert "was chosen and not verified" in texts(page)
    page.selectbox[0].set_value("r1").run()
    assert page.query_params["reader"] == "r1"
    press(page, "Start reading")
    first = viewer_data(page)["slide"]["slide_id"]
    assert page.query_params["reading"] == first
    assert form_data(page)["answers"] == {}

    browser(page, "keep", diagnosis="atypical", sure=70)
    browser(page, "keep", diagnosis="malignant")
    browser(page, "keep", remarks="small biopsy")
    kept = {"diagnosis": "malignant", "sure": 70, "remarks": "small biopsy"}
    assert form_data(page)["answers"] == kept
    assert form_data(open_page(**READ, reader="r1"))["answers"] == kept, "kept as it was given"

    with open_ledger(Project(root)) as ledger:
        context = ViewContext(first, "r1", UNSIGNED, STUDY, "r1/1/1")
        save_looks(
            ledger, context, CoverageGrid(128.0, 7, 5), [whole(2.0), whole(1.0)], rule=SeenRule(), mpp0=0.5, seconds=1e6
        )
    browser(page, "sign", **kept)
    assert f"Signed: slide {first}." in texts(page)
    assert "2 can be read now." in texts(page)
    kinds = [element.proto.component_name for element in page.get("bidi_component")]
    assert not [kind for kind in kinds if "viewer" in kind or "questions" in kind], "nothing is read in between"
    with open_ledger(Project(root)) as ledger:
        assert of_study(ledger).row("r1", 1, 2).state == "open", "the next begins when its reader says so"
    press(page, "Next")
    assert viewer_data(page)["slide"]["slide_id"] != first
    assert "session 1, slide 2 of 3 · 1 of 3 signed" in texts(page)

    with open_ledger(Project(root)) as ledger:
        row = of_study(ledger).row("r1", 1, 1)
        assert (row.state, 0 < row.seconds < 60) == ("signed", True), "no longer than since its start"
        entries = ledger.history(STUDY, reading_subject("r1", 1, 1))
        given = ["answer given"] * 4
        assert [entry.action for entry in entries[1:]] == ["reading started", *given, "reading signed"]
        assert {entry.actor for entry in entries[1:]} == {UNSIGNED}
        seen = json.loads(entries[-1].details)["seen"]
        assert seen["seen_rule"] == {"magnification": 10.0, "seconds": 1.0, "field_px": 600}
        assert (seen["tissue_seen"]["2.5x"], seen["tissue_seen"]["20x"]) == (1.0, 0.0)
        assert 0.5 < seen["tissue_seen"]["10x"] < 1, "the slide's corners lie outside the field"
        assert not verify_log(ledger.database, STUDY).findings
        assert not verify_reviews(ledger.database, STUDY)


def whole(um_per_px: float) -> Viewing:
    return Viewing(((0, 0), (1800, 0), (1800, 1300), (0, 1300)), um_per_px, 2.0, 2.0)


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
        "study": open_page(study=STUDY),
        "failures": open_page(study=STUDY, view="failures"),
        "studies": open_page(study=""),
        "runs": open_page(page="runs"),
        "side by side": open_page(compare=f"{row.slide_id}~{MODEL_ID},{row.slide_id}"),
    }
    for name, page in pages.items():
        everything = sent(page)
        assert MODEL_ID not in everything, name
        assert not any(route in everything for route in ("/overlays/", "/heatmaps/", "/exports/")), name
        assert "0.97" not in everything, name
        assert "malignant" not in everything or name == "reading", f"{name}: another reader's answer"
    assert viewer_data(pages["reading"])["hotspots"] == []
    assert viewer_data(pages["reading"])["hotspots_note"] is None
    assert "has not signed that reading" in texts(pages["slide"])
    assert "has not signed that reading" in texts(pages["slide of the study"])
    assert "r2" not in html_of(pages["readings"]), "how far others are is for who steers"
    for name in ("study", "failures", "runs"):
        assert "has not signed all of those readings" in texts(pages[name]), name
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


@pytest.mark.parametrize(
    ("arm", "rests_on", "is_shown"),
    [
        pytest.param("assisted", 1, True, id="assisted"),
        pytest.param("unassisted", 1, False, id="unassisted"),
        pytest.param("assisted", 2, False, id="it rests on a slide that is still to be read"),
    ],
)
def test_a_reading_shows_the_studys_slide_level_models_where_it_shows_models(
    made: Any, arm: str, rests_on: int, is_shown: bool
) -> None:
    root = made(readers=["r1"], arms=[arm], slides=2, models=(MODEL_ID, SLIDE_MODEL))
    with open_ledger(Project(root)) as ledger:
        due, later = (row.slide_id for row in of_study(ledger).rows_of_arm(arm))
        of_study(ledger).start("r1", 1, 1)
    write_small_attention(Project(root), due, slides=(due, later)[:rests_on])
    page = open_page(**READ, reader="r1")
    data = viewer_data(page)
    assert [answer["model"] for answer in data["answers"]] == [SLIDE_MODEL] * is_shown
    assert len([layer for layer in data["layers"] if layer["kind"] == "attention"]) == is_shown
    assert (SLIDE_MODEL in sent(page)) == is_shown


def test_an_assisted_reading_opens_the_predictions_and_nothing_that_people_said(made: Any, signed_in: Any) -> None:
    root = made(readers=["r1", "r2"], arms=["assisted"], slides=2)
    (root / "cohort.csv").write_text(
        "path,slide_id,patient_id,label\n" + "".join(f"x.svs,S-00{n},P-{n},reference-label\n" for n in (1, 2))
    )
    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r2", "malignant")
        read_one(of_study(ledger), "r2", "malignant")
        slide_id = of_study(ledger).next_of("r1").slide_id
        add_review(ledger, ViewContext(slide_id, "bob", "bob"), SlideReview("agree", "Bob", "label-of-a-review"))
        of_study(ledger).start("r1", 1, 1)
    planted = ("reference-label", "label-of-a-review", "malignant")
    signed_in(COORDINATOR)
    links = (
        {"slide": slide_id}, {"study": STUDY, "study_slide": slide_id}, {}, {"sort": "label"}, {"view": "gallery"},
        {"group": "case"}, {"compare": f"{slide_id}~{MODEL_ID},{slide_id}"},
    )  # fmt: skip
    everything = "\n".join(sent(open_page(**link)) for link in links)
    assert [word for word in planted if word not in everything] == []
    signed_in(R1)
    pages = [sent(open_page(**link)) for link in links]
    assert [word for word in planted for page in pages if word in page] == []
    assert "he reference label, and other people's answers" in texts(open_page(slide=slide_id))
    for page in (pages[0], pages[2], pages[-1]):
        assert MODEL_ID in page, "the predictions are open"
    for shows in (Shows.RESULT, Shows.MODEL):
        with pytest.raises(BlindedError, match="are hidden: r1 reads it for study readers in the arm “assisted”"):
            check_shown(Project(root), R1, shows, slide_id)
    with pytest.raises(BlindedError):
        review_slide(replace(R1, roles=frozenset({Role.REVIEWER})), slide_id, SlideReview("agree", "Ada"))


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
    press(page, "Next")
    assert viewer_data(page)["hotspots"]


def test_a_glass_slide_is_read_at_the_microscope(made: Any, browser: Any) -> None:
    root = made(readers=["r1"], arms=["glass", "digital"])
    with open_ledger(Project(root)) as ledger:
        of_study(ledger).start("r1", 1, 1)
    page = open_page(**READ, reader="r1")
    kinds = [element.proto.component_name for element in page.get("bidi_component")]
    assert not any("viewer" in kind for kind in kinds)
    assert any("clock" in kind for kind in kinds)
    browser(page, "sign", diagnosis="benign", sure=70)
    press(page, "Next")
    assert "slide 2 of 3" in texts(page)


def test_where_readers_disagree_the_adjudicator_sees_their_answers_and_decides(made: Any, browser: Any) -> None:
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
    assert "malignant" not in sent(page), "nothing before the reading is started"
    press(page, "Start reading")
    assert viewer_data(page)["slide"]["slide_id"] == "S-002"
    assert form_data(page)["others"] == [
        {"name": "r1", "answers": {"diagnosis": "benign", "sure": 80.0}},
        {"name": "r2", "answers": {"diagnosis": "malignant", "sure": 80.0}},
    ]
    assert form_data(page)["answers"] == {}, "what readers agree on is not stored before the adjudicator says so"
    assert MODEL_ID not in sent(page), "the arm allows no predictions"
    browser(page, "sign", diagnosis="benign", sure=70)
    assert "Everything is signed: 1 reading of chief." in texts(page)


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
    assert page.button(key="next_unread").label == "Next unread (2)"
    page.button(key="next_unread").click().run()
    assert page.query_params["view"] == "read"
    assert signed in linked(page)
    assert f"?study={STUDY}&study_slide={signed}" in hrefs(page)


def test_the_next_unread_skips_a_washout_and_says_how_many_are_not_due(
    made: Any, signed_in: Any, project: Project, tmp_path: Path
) -> None:
    root = made(readers=["r1"], arms=["unassisted", "assisted"], slides=2)
    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r1", "benign")
        read_one(of_study(ledger), "r1", "benign")
    signed_in(R1)
    page = open_page()
    assert "Nothing to read now: 2 not due yet; the next on 20" in texts(page)
    assert "next_unread" not in [button.key for button in page.button]
    page = open_page(**READ)
    assert "2 readings are not due yet" in texts(page)
    assert "next_unread" not in [button.key for button in page.button], "no other study has one"
    with open_ledger(Project(root)) as ledger:
        protocol = ledger.study(STUDY).frozen()
        protocol["reading"] |= {"arms": ["unassisted"]}
        ledger.begin("second", protocol, "0" * 64, [NewSlide("S-001")], STAGES, actor="ada")
        second = readings_of(ledger, "second")
        assert second is not None
        second.begin(lay_out(second.config, ["S-001"], 3), actor="ada")
    page = open_page()
    assert page.button(key="next_unread").label == "Next unread (1)"
    assert "2 not due yet; the next on 20" in texts(page)
    page = open_page(**READ)
    page.button(key="next_unread").click().run()
    assert (page.query_params["study"], page.query_params["view"]) == ("second", "read")


def test_between_two_slides_a_reader_may_pause(made: Any) -> None:
    root = made()
    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r1", "benign")
    page = open_page(**READ, reader="r1")
    press(page, "Pause")
    assert page.query_params == {"study": STUDY, "view": "readings"}
    with open_ledger(Project(root)) as ledger:
        assert of_study(ledger).row("r1", 1, 2).state == "open"


def test_a_reader_gets_nobody_elses_answers_and_an_adjudicator_none_before_all_have_signed(
    made: Any, signed_in: Any
) -> None:
    root = made(readers=["r1", "r2", "r3"])
    with open_ledger(Project(root)) as ledger:
        readings = of_study(ledger)
        for _ in range(3):
            read_one(readings, "r1", "malignant")
            read_one(readings, "r2", "atypical")
        readings.adjudicate("diagnosis", "unassisted", actor="ada")
        readings.start("r3", 1, 1)
    signed_in(Person("bob", frozenset({Role.READER}), "r3"))
    page = open_page(**READ)
    assert form_data(page)["others"] == []
    signed_in(Person("joe", frozenset({Role.REVIEWER}), "chief"))
    page = open_page(**READ)
    assert "3 slides wait for your decision: not every reader has signed them." in texts(page)
    assert not [word for word in ("malignant", "atypical") if word in sent(page)]
    assert "start_reading" not in [button.key for button in page.button]
    with open_ledger(Project(root)) as ledger:
        slide_id = read_one(of_study(ledger), "r3", "malignant")
    page = open_page(**READ)
    press(page, "Start reading")
    assert viewer_data(page)["slide"]["slide_id"] == slide_id
    assert [other["name"] for other in form_data(page)["others"]] == ["r1", "r2", "r3"]


def test_a_slide_is_reviewed_outside_studies_and_the_review_is_shown(made: Any, browser: Any) -> None:
    root = made()
    page = open_page(slide="S-001")
    place = form_data(page)["place"]
    browser(page, "sign", comment="crush artefact")
    assert form_data(page)["wrong"] == "a review needs a verdict: agree, disagree, or cannot judge."
    assert form_data(page)["place"] == place, "what was typed stays"
    browser(page, "sign", verdict="Disagree", label="benign", comment="crush artefact", name="Ada")
    page.run()
    assert (form_data(page)["wrong"], form_data(page)["answers"]) == (None, {"name": "Ada"})
    assert form_data(page)["place"] != place, "the next one begins empty"
    shown = html_of(page)
    assert ("Disagree" in shown, "crush artefact" in shown, "Ada" in shown) == (True, True, True)
    with open_ledger(Project(root)) as ledger:
        (review,) = reviews_of(ledger, "S-001")
        assert (review.model_id, review.class_name, review.label) == (MODEL_ID, "positive", "benign")
        assert len(review.predictions_sha256 or "") == 64
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


def test_a_signature_locks_what_was_shown_or_says_what_has_changed(made: Any, browser: Any) -> None:
    root = made()
    with open_ledger(Project(root)) as ledger:
        of_study(ledger).start("r1", 1, 1)
        page = open_page(**READ, reader="r1")
        browser(page, "keep", diagnosis="benign", sure=80)
        of_study(ledger).give("r1", 1, 1, "artefact", True)  # in another tab
        browser(page, "sign", diagnosis="benign", sure=85)
        assert "changed elsewhere since it was shown here: artefact" in form_data(page)["wrong"]
        assert of_study(ledger).row("r1", 1, 1).state == "started"
        assert of_study(ledger).answers("r1", 1, 1)["sure"] == 80, "all or nothing"
        browser(page, "sign", diagnosis="benign", sure=85, artefact=True, remarks="typed, and the field not left")
        assert of_study(ledger).row("r1", 1, 1).state == "signed"
        assert of_study(ledger).answers("r1", 1, 1) == {
            "diagnosis": "benign", "sure": 85, "artefact": True, "remarks": "typed, and the field not left",
        }  # fmt: skip
        assert not verify_log(ledger.database, STUDY).findings


@pytest.mark.parametrize(
    "said", [None, "x", {}, {"answers": 1}, {"answers": {"sure": 5}}, {"place": "another", "answers": {"sure": 5}}]
)
def test_what_is_no_answer_of_this_reading_is_kept_by_nobody(said: object, made: Any) -> None:
    root = made()
    with open_ledger(Project(root)) as ledger:
        readings = of_study(ledger)
        readings.start("r1", 1, 1)
        link = ReadingLink(STUDY, "r1", 1, 1)
        reading = reading_form.StartedReading(current_study_ledger(), readings, link, readings.row("r1", 1, 1), None)  # type: ignore[arg-type]
        with pytest.raises(BadManifestError, match="Reload the page"):
            signed_form.answers_in(said, reading.place)
        for value in ([1], {"a": 1}, None):
            with pytest.raises(BadManifestError, match="is not an answer"):
                signed_form.answers_in({"place": reading.place, "answers": {"sure": value}}, reading.place)
        for text_ in ("a\0b", "\ud800"):
            with pytest.raises(BadManifestError, match="is not a valid answer"):
                readings.give("r1", 1, 1, "remarks", text_)


def test_who_is_named_adjudicator_without_the_right_decides_nothing(made: Any, signed_in: Any) -> None:
    root = made()
    chief = Person("joe", frozenset({Role.READER}), "chief")
    with open_ledger(Project(root)) as ledger:
        readings = of_study(ledger)
        for reader in ("r1", "r2"):
            for _ in range(3):
                read_one(readings, reader, "malignant" if reader == "r2" else "benign")
        readings.adjudicate("diagnosis", "unassisted", actor="ada")
        link = ReadingLink(STUDY, "chief", 1, 1)
        with pytest.raises(ForbiddenError, match="You may not decide"):
            start_reading(chief, readings, link)
        signed_in(chief)
        page = open_page(**READ)
        assert "You may not decide where readers disagree" in texts(page)
        assert not [button for button in page.button if button.key in ("start_reading", "sign")]
        assert "malignant" not in sent(page)
        readings.start("chief", 1, 1)
        with pytest.raises(ForbiddenError, match="You may not decide"):
            sign_reading(chief, readings, link, {"diagnosis": "benign", "sure": 1}, seconds=1, seen={})
        assert "malignant" not in sent(open_page(**READ))
        assert readings.row("chief", 1, 1).state == "started"


def test_an_open_page_is_drawn_again_when_a_reading_begins(made: Any) -> None:
    root = made()
    page = open_page(slide="S-001")
    assert viewer_data(page)["hotspots"]
    with open_ledger(Project(root)) as ledger:
        readings = of_study(ledger)
        while readings.next_of("r1").slide_id != "S-001":
            read_one(readings, "r1", "benign")
        row = readings.next_of("r1")
        readings.start("r1", row.session, row.position)
    page.run()  # as the page itself does, every few seconds
    assert MODEL_ID not in sent(page)
    assert "has not signed that reading" in texts(page)


def test_every_part_of_a_page_that_runs_by_itself_asks_first_what_may_be_shown() -> None:
    folder = Path(declared_pages.__file__).parent
    users = [path.name for path in folder.rglob("*.py") if "st.fragment" in path.read_text()]
    assert users == ["declared.py"]


@pytest.mark.parametrize(("slides", "is_named"), [(None, True), (("S-001", "S-002"), True), (("S-001",), False)])
def test_the_worklist_names_no_slide_level_model_that_saw_a_slide_hidden_from_the_person(
    made: Any, signed_in: Any, slides: tuple[str, ...] | None, is_named: bool
) -> None:
    root = made(readers=["r1"], slides=2)
    write_small_attention(Project(root), "S-001", slides=("S-001", "S-002"))
    signed_in(replace(COORDINATOR, slides=slides))
    page = sent(open_page())
    assert "S-001" in page
    assert (SLIDE_MODEL in page) == is_named
