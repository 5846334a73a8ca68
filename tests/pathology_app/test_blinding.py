"""Blinding per person and time; every page and route declares what it shows, so that none can be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route
from streamlit.testing.v1 import AppTest

from pathology_app import app_pages, page_table
from pathology_app.app_pages.declared import DeclaredPage
from pathology_app.app_pages.studies import page as studies
from pathology_app.asgi import app_routes
from pathology_app.links.reading import ReadingLink
from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pathology_app.people.person import Person, Role
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.readings.acts import start_reading
from pathology_app.readings.blinding import BlindedError, Shows, check_shown, visibility_of
from pathology_app.routes.declared import DeclaredRoute, only_declared
from pipeline.errors import BadManifestError
from pipeline.ledger import Ledger
from pipeline.ledger.ledger import NewSlide
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.reading.order import Assignment, lay_out
from pipeline.study.reading.progress import readings_of
from tests.attacks import blinded_readers
from tests.pathology_app.signed_in import browser, cookie_of, hashed, sign_in
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.small_reading import QUESTIONS, STUDY, begin_reading_study, of_study, read_one
from tests.pathology_app.started_app import started_app
from tests.pathology_app.streamlit_socket import tab

R1 = Person("ada", frozenset({Role.READER}), "r1")
R2 = Person("bea", frozenset({Role.READER}), "r2")
CHIEF = Person("carl", frozenset({Role.REVIEWER}), "chief")
COORDINATOR = Person("eve", frozenset({Role.COORDINATOR}))
NOBODY = Person()
SLIDES = ("S-1", "S-2")
OUTSIDE = "S-9"
"""A slide of no study."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    yield Project(tmp_path)
    close_study_ledgers()


@pytest.fixture
def made(project: Project) -> Callable[..., Project]:
    def make(**reading: Any) -> Project:
        begin_reading_study(project.root, SLIDES, **reading)
        return project

    return make


def hidden(project: Project, person: Person) -> set[str]:
    """Hidden slides, on which the pages and routes must agree; models are hidden if any slide is."""
    visibility = visibility_of(project, person)
    for slide_id in SLIDES:
        if slide_id in visibility.hidden:
            with pytest.raises(BlindedError, match=f"because|for study {STUDY}|study"):
                check_shown(project, person, Shows.RESULT, slide_id)
        else:
            check_shown(project, person, Shows.RESULT, slide_id)
    if visibility.first is not None:
        with pytest.raises(BlindedError):
            check_shown(project, person, Shows.MODEL)
    assert not visibility.hidden or visibility.first is not None
    for slide_id in (*SLIDES, OUTSIDE):
        if blinded := visibility.hides_predictions(slide_id):
            assert visibility.hides_assessments(slide_id)
            assert blinded.study_id == STUDY
            with pytest.raises(BlindedError):
                check_shown(project, person, Shows.PREDICTION, slide_id)
        else:
            check_shown(project, person, Shows.PREDICTION, slide_id)
    assert (visibility.hides_predictions(OUTSIDE) is None) == (visibility.first is None), "a slide of no study"
    return set(visibility.hidden)


def hidden_predictions(project: Project, person: Person) -> set[str]:
    """Slides of the study whose predictions are hidden."""
    hidden(project, person)
    return set(filter(visibility_of(project, person).hides_predictions, SLIDES))


def test_named_readers_and_adjudicators_are_blinded_from_the_day_a_study_begins(made: Callable[..., Project]) -> None:
    project = made(laid_out=False)
    for person in (R1, R2, CHIEF):
        assert hidden(project, person) == set(SLIDES)
    assert hidden(project, COORDINATOR) == set()
    assert hidden(project, NOBODY) == set(), "nobody has begun, and nobody is named"


def test_a_reader_is_blinded_in_the_washout_until_the_last_session_is_signed(made: Callable[..., Project]) -> None:
    project = made(arms=["unassisted", "assisted"], order="sequential", readers=["r1"], adjudicators=[])
    with open_ledger(project) as ledger:
        first = read_one(of_study(ledger), "r1", "benign")
        assert hidden(project, R1) == set(SLIDES), "session 2 is to come"
        assert hidden(project, NOBODY) == {first}, "whoever looks may be its reader"
        read_one(of_study(ledger), "r1", "benign")
        assert hidden(project, R1) == set(SLIDES)
        assert visibility_of(project, R1).models == {MODEL_ID}


def test_predictions_are_shown_in_an_assisted_reading_and_then_hidden_again(made: Callable[..., Project]) -> None:
    project = made(arms=["assisted", "unassisted"], order="sequential", readers=["r1"], adjudicators=[])
    with open_ledger(project) as ledger:
        assert hidden(project, R1) == set(SLIDES), "not before it is started"
        due = of_study(ledger).next_of("r1")
        of_study(ledger).start("r1", due.session, due.position)
        assert hidden_predictions(project, R1) == set(SLIDES) - {due.slide_id}
        assert due.slide_id not in hidden_predictions(project, NOBODY)
        assert hidden(project, R1) == set(SLIDES), "what people have said of it stays hidden"
        assert hidden(project, NOBODY) == {due.slide_id}
        seen = visibility_of(project, R1)
        assert (seen.predicted, seen.labelled) == ({due.slide_id}, set())
        read_one(of_study(ledger), "r1", "benign")
        assert hidden_predictions(project, R1) == set(SLIDES)


def test_without_sign_in_one_reader_without_help_hides_the_predictions(made: Callable[..., Project]) -> None:
    project = made(arms=["assisted", "unassisted"], readers=["r1", "r2"], adjudicators=[])
    with open_ledger(project) as ledger:
        arms = {}
        for reader in ("r1", "r2"):
            rows = of_study(ledger).rows_of_arm("assisted") + of_study(ledger).rows_of_arm("unassisted")
            due = next(row for row in rows if (row.reader, row.slide_id, row.session) == (reader, "S-1", 1))
            arms[reader] = due.arm
            for row in sorted(rows, key=lambda row: row.position):
                if row.reader == reader and row.session == 1 and row.position < due.position:
                    read_one(of_study(ledger), reader, "benign")
            of_study(ledger).start(reader, 1, due.position)
        assert set(arms.values()) == {"assisted", "unassisted"}
        assert "S-1" in hidden_predictions(project, NOBODY)


def test_an_adjudicator_is_blinded_until_it_is_decided_or_cannot_be_asked(made: Callable[..., Project]) -> None:
    project = made()
    with open_ledger(project) as ledger:
        readings = of_study(ledger)
        for reader in ("r1", "r2"):
            assert hidden(project, CHIEF) == set(SLIDES)
            for _ in SLIDES:
                slide_id = readings.next_of(reader).slide_id
                read_one(readings, reader, "malignant" if (reader, slide_id) == ("r2", "S-2") else "benign")
        assert (hidden(project, R1), hidden(project, R2)) == (set(), set())
        assert hidden(project, CHIEF) == {"S-2"}, "they may be asked; on the other slide all agree"
        readings.adjudicate("diagnosis", "unassisted", actor="ada")
        readings.start("chief", 1, 1)
        assert hidden(project, CHIEF) == {"S-2"}
        read_one(readings, "chief", "benign")
        assert hidden(project, CHIEF) == set()


def second_study(ledger: Ledger, arm: str, *, laid_out: bool = True) -> None:
    reading = {"readers": ["r1"], "arms": [arm], "questions": QUESTIONS}
    protocol = {
        "study": {"title": "Another"},
        "models": [{"id": MODEL_ID, "sha256": "0" * 64, "config_sha256": "0" * 64}],
        "reading": reading,
    }
    ledger.begin("second", protocol, "0" * 64, [NewSlide(name) for name in SLIDES], ["ingest"], actor="ada")
    readings = readings_of(ledger, "second")
    assert readings is not None
    if laid_out:
        readings.begin(lay_out(readings.config, SLIDES, 3), actor="ada")


@pytest.mark.parametrize("laid_out", [True, False])
def test_a_reader_of_two_studies_is_helped_in_neither_before_the_unaided_reading_is_signed(
    made: Callable[..., Project], laid_out: bool
) -> None:
    project = made(arms=["assisted"], readers=["r1"], adjudicators=[])
    with open_ledger(project) as ledger:
        readings = of_study(ledger)
        due = readings.next_of("r1")
        readings.start("r1", due.session, due.position)
        assert due.slide_id not in hidden_predictions(project, R1)
        second_study(ledger, "unassisted", laid_out=laid_out)
        assert hidden_predictions(project, R1) == set(SLIDES), "the other study forbids it"
        readings.sign("r1", due.session, due.position, seconds=1, answers={"diagnosis": "benign", "sure": 1})
        due = readings.next_of("r1")
        with pytest.raises(BadManifestError, match="without help for study second"):
            start_reading(R1, readings, ReadingLink(STUDY, "r1", due.session, due.position))


def test_whom_the_protocol_does_not_name_is_laid_nothing_out(made: Callable[..., Project]) -> None:
    project = made(laid_out=False)
    with open_ledger(project) as ledger:
        for reader, arm in (("mallory", "unassisted"), ("chief", "unassisted"), ("r1", "adjudication")):
            with pytest.raises(BadManifestError, match="is not among"):
                of_study(ledger).begin([Assignment(reader, 1, 1, "S-1", arm)], actor="ada")


def test_every_page_says_what_it_shows_and_is_visited_by_the_attack() -> None:
    pages = [*page_table.PAGES, *studies.VIEWS]
    assert all(isinstance(page, DeclaredPage) and isinstance(page.shows, Shows) for page in pages)
    assert {page.name for page in pages} == set(blinded_readers.PAGES) | {"study"}
    folder = Path(app_pages.__file__).parent
    drawn = {path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py") if _is_page(path)}
    modules = (page.draw.__module__.removeprefix(app_pages.__name__ + ".") for page in pages)
    assert drawn == {Path(*module.split(".")) for module in modules}, "a page that no table has"


def _is_page(path: Path) -> bool:
    return ", visibility: Visibility) -> None:" in path.read_text() or ", _: Visibility) -> None:" in path.read_text()


def test_every_route_says_what_it_shows_and_is_visited_by_the_attack(project: Project) -> None:
    routes = only_declared(app_routes())
    get_paths = {route.path for route in routes if "GET" in (route.methods or ()) and not _leads_nowhere(route)}
    assert get_paths == set(blinded_readers.ROUTES)
    shown = {route.path.split("/")[1]: route.shows for route in routes if route.shows is not Shows.NEITHER}
    predictions = dict.fromkeys(("overlays", "heatmaps", "hotspots", "crops", "exports"), Shows.PREDICTION)
    assert shown == {**predictions, **dict.fromkeys(("annotations", "reports"), Shows.RESULT), "log.csv": Shows.MODEL}


def _leads_nowhere(route: DeclaredRoute) -> bool:
    folder = route.path.removesuffix("/{rest:path}")
    return folder.count("/") == 1 and folder[1:] in (
        "tiles", "overlays", "layers", "heatmaps", "annotations", "coverage", "hotspots", "crops", "exports", "reports",
        "registrations", "find", "ahead",
    ) and route.path.endswith("/{rest:path}")  # fmt: skip


def test_a_route_that_does_not_say_what_it_shows_cannot_be_registered() -> None:
    async def handler(_: Any) -> Response:
        return Response("")

    with pytest.raises(TypeError, match="'/new': does not declare what it shows"):
        only_declared([Route("/new", handler)])
    with pytest.raises(TypeError):
        DeclaredRoute("/new", handler)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        DeclaredPage("new", lambda query: True, draw=lambda: None)  # type: ignore[call-arg]


def test_a_page_that_shows_models_and_withholds_nothing_is_not_drawn_for_a_blinded_person() -> None:
    def script() -> None:
        import streamlit as st

        from pathology_app.app_pages.declared import DeclaredPage, draw_page
        from pathology_app.people.person import Person
        from pathology_app.readings.blinding import Shows, Visibility
        from pipeline.study import Blinded

        def draw(visibility: Visibility) -> None:
            st.markdown(f"drawn for {'somebody blinded' if visibility.first else 'anybody'}")

        blinded = Visibility(Person(), Blinded("S", "r1 reads for study S"))
        for shows in (Shows.MODEL, Shows.RESULT, Shows.NEITHER):
            for redacts in (True, False):
                st.caption(f"{shows} {redacts}")
                draw_page((DeclaredPage("x", lambda query: True, shows, draw, redacts),), {}, blinded)

    page = AppTest.from_function(script, default_timeout=20).run()
    assert not page.exception
    assert len(page.markdown) == 4
    assert len(page.info) == 2


def test_no_part_of_an_open_page_goes_on_showing_results_when_a_study_begins(tmp_path: Path) -> None:
    """Also for a browser that never checks whether the page is still current."""
    make_project(tmp_path)
    with changing_accounts(tmp_path / ACCOUNTS_FILE) as accounts:
        accounts.append(Account(name="rita", roles=("reader",), password=hashed(), reader="r1"))
    with started_app(tmp_path, tmp_path / "server.log") as app, browser(app.url) as client:
        sign_in(client, "rita")
        with tab(app, cookie_of(client)) as opened:
            opened.run(f"slide={SLIDE_ID}")
            assert MODEL_ID.encode() in opened.heard
            begin_reading_study(tmp_path, [SLIDE_ID], laid_out=False)
            fragments = sorted(opened.fragments)
            assert fragments
            for fragment_id in fragments:
                opened.heard.clear()
                opened.run(f"slide={SLIDE_ID}", fragment_id=fragment_id)
                assert MODEL_ID.encode() not in opened.heard
                assert b"/overlays/" not in opened.heard
        answer = client.get(f"/overlays/{SLIDE_ID}/{MODEL_ID}/1.png")
        assert (answer.status_code, answer.json()["code"]) == (403, "blinded")
