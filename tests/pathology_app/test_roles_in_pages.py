"""The server decides what a page shows and does, whatever a browser sends over its WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pipeline.ledger import PROJECT_LOG, find_ledger
from pipeline.project import Project
from pipeline.review import SlideReview, ViewContext, add_review
from tests.pathology_app.signed_in import add_people, browser, cookie_of, sign_in
from tests.pathology_app.small_project import SLIDE_ID, make_project
from tests.pathology_app.small_study import STUDY, make_study
from tests.pathology_app.started_app import StartedApp, started_app
from tests.pathology_app.streamlit_socket import Tab, form_of, tab, texts

pytestmark = pytest.mark.xdist_group("sign_in")

STUDY_PAGE = f"study={STUDY}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("roles")
    make_project(root)
    make_study(root)
    add_people(root)
    return root


@pytest.fixture(scope="module")
def app(root: Path) -> Iterator[StartedApp]:
    with started_app(root, root / "server.log") as app:
        yield app


def session(app: StartedApp, name: str) -> str:
    with browser(app.url) as client:
        sign_in(client, name)
        return cookie_of(client)


def test_a_reader_who_sends_a_coordinators_words_does_nothing(app: StartedApp, root: Path) -> None:
    project = Project(root)
    with tab(app, session(app, "cora")) as coras:
        pause = form_of(coras.run(STUDY_PAGE), "Pause")
    with tab(app, session(app, "rita")) as ritas:
        assert "Pause" not in texts(ritas.run(STUDY_PAGE))
        ritas.run(STUDY_PAGE, pause)
    opened = find_ledger(project)
    assert opened
    with opened as ledger:
        assert ledger.study(STUDY).state == "running"
        with tab(app, session(app, "cora")) as coras:
            coras.run(STUDY_PAGE)
            coras.run(STUDY_PAGE, pause)
        assert ledger.study(STUDY).state == "paused"
        (entry,) = ledger.history(STUDY, "study", newest=1)
        assert (entry.actor, entry.why) == ("cora (web app)", "because")


def test_other_peoples_slides_and_studies_are_on_no_page(app: StartedApp, root: Path) -> None:
    with tab(app, session(app, "bob")) as bobs:
        for query in (
            "",
            f"slide={SLIDE_ID}",
            f"compare={SLIDE_ID}~{SLIDE_ID}",
            f"study={STUDY}",
            "study=",
            "page=runs",
        ):
            drawn = texts(bobs.run(query))
            assert "Three sites" not in drawn
            assert f"/tiles/{SLIDE_ID}" not in drawn
            assert f"/thumbnails/{SLIDE_ID}" not in drawn
        assert "0 of 0 slides" not in texts(bobs.run(""))
        assert "No slides in this project" in texts(bobs.run(""))
        assert "Runs name all slides of the project" in texts(bobs.run("page=runs"))
        refused = texts(bobs.run(f"study={STUDY}&study_slide={SLIDE_ID}"))
    assert "not in this ledger" in refused
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger:
        hidden = ledger.history(PROJECT_LOG, "hidden slide")
        assert {row.actor for row in hidden} == {"bob (web app)"}
        assert not [row for row in ledger.history(PROJECT_LOG, f"slide {SLIDE_ID}") if row.actor.startswith("bob")]


def test_the_log_is_drawn_for_admins_only(app: StartedApp) -> None:
    for name, may in (("rita", False), ("cora", False), ("ada", True)):
        with tab(app, session(app, name)) as opened:
            drawn = texts(opened.run("log="))
        assert ("signed in" in drawn) == may
        assert ("You may not see who viewed which slides" in drawn) != may


def test_the_log_page_finds_what_was_changed_behind_the_logs_back(app: StartedApp, root: Path) -> None:
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger, tab(app, session(app, "ada")) as adas:
        add_review(ledger, ViewContext(SLIDE_ID, "rae", "rae (web app)"), SlideReview("agree", "Rae"))
        verify = form_of(adas.run("log="), "Verify the log")[:1]
        assert "entries verified" in texts(adas.run("log=", verify))
        for verdict in ("disagree", "agree"):
            with ledger.database.write() as connection:
                connection.execute(text("UPDATE review SET verdict = :verdict"), {"verdict": verdict})
            page_text = texts(adas.run("log=", verify))
            assert ("The log failed verification" in page_text) == (verdict == "disagree")
            assert ("was changed without an entry" in page_text) == (verdict == "disagree")


def test_a_slide_is_logged_once_for_each_opening(app: StartedApp, root: Path) -> None:
    cookie = session(app, "ada")
    for _ in range(2):
        with tab(app, cookie) as opened:
            for _ in range(3):
                assert f"/tiles/{SLIDE_ID}" in texts(opened.run(f"slide={SLIDE_ID}"))
    log_ledger = find_ledger(Project(root))
    assert log_ledger
    with log_ledger as ledger:
        views = [row for row in ledger.history(PROJECT_LOG, f"slide {SLIDE_ID}") if row.actor == "ada (web app)"]
    assert [row.details for row in views] == ['{"model":"demo-0a1b2c3d","page":"slide"}'] * 2


def test_a_websocket_without_a_session_is_refused(app: StartedApp) -> None:
    forged = f"gemslide_session_{app.port}=guessed"
    for cookie in ("", forged):
        with pytest.raises(InvalidStatus, match="401"), tab(app, cookie):
            pass


def test_a_browser_that_says_it_is_another_is_not(app: StartedApp) -> None:
    with tab(app, session(app, "rita"), **{"X-Gemslide-Visitor": "x open"}) as opened:
        assert "You may not see who viewed which slides" in texts(opened.run("log="))


def test_who_signs_out_is_out_in_every_open_tab(app: StartedApp) -> None:
    with browser(app.url) as client:
        sign_in(client, "rita")
        with tab(app, cookie_of(client)) as opened:
            assert "Worklist" in texts(opened.run(""))
            token = client.get("/sign-out").text.split('name="form" value="')[1].split('"')[0]
            client.post("/sign-out", data={"form": token})
            drawn = texts(opened.run(f"slide={SLIDE_ID}"))
            assert "You are signed out" in drawn
            assert f"/tiles/{SLIDE_ID}" not in drawn
            with pytest.raises(ConnectionClosed):  # within seconds
                _run_for_ever(opened)


def _run_for_ever(opened: Tab) -> None:
    while True:
        opened.run("")
