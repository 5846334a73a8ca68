"""Slides beside the one shown: what a person may see of a case or list, what is loaded ahead, and what is logged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pathology_app.people.account_file import ACCOUNTS_FILE, Account, changing_accounts
from pathology_app.slides.cache import SlideCache
from pathology_app.tiles import routes
from pathology_app.viewer.bundle import bundle_path
from pipeline.ledger import LogFilter, find_ledger, project_history, slide_subject
from pipeline.project import Project
from tests.pathology_app.routes_in_process import get
from tests.pathology_app.signed_in import browser, cookie_of, hashed, sign_in
from tests.pathology_app.small_case import CASE, make_cases
from tests.pathology_app.small_project import HEIGHT_PX0, MODEL_ID, SLIDE_ID, WIDTH_PX0
from tests.pathology_app.small_reading import begin_reading_study
from tests.pathology_app.started_app import StartedApp, started_app
from tests.pathology_app.streamlit_socket import tab

pytestmark = pytest.mark.xdist_group("sign_in")

PEOPLE = {"rita": (("reviewer",), None, None), "bob": (("reader",), None, ("C-*",)), "eva": (("reader",), "r1", None)}
"""Roles, reader of the study, and slides that they may see."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cases")
    make_cases(root)
    begin_reading_study(root, ["C-1", "C-2"], readers=["r1"], adjudicators=[])
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        for name, (roles, reader, slides) in PEOPLE.items():
            known = {"reader": reader} if reader else {}
            accounts.append(Account(name=name, roles=roles, password=hashed(), slides=slides, **known))
    return root


@pytest.fixture(scope="module")
def app(root: Path) -> Iterator[StartedApp]:
    with started_app(root, root / "server.log") as app:
        yield app
    assert "Traceback" not in (root / "server.log").read_text()


@pytest.fixture
def rita(app: StartedApp) -> Iterator[httpx.Client]:
    yield from signed_in(app, "rita")


@pytest.fixture
def bob(app: StartedApp) -> Iterator[httpx.Client]:
    yield from signed_in(app, "bob")


@pytest.fixture
def eva(app: StartedApp) -> Iterator[httpx.Client]:
    yield from signed_in(app, "eva")


def signed_in(app: StartedApp, name: str) -> Iterator[httpx.Client]:
    with browser(app.url) as client:
        sign_in(client, name)
        yield client


def tray(client: httpx.Client, slide_id: str, query: str = "") -> dict[str, Any]:
    answer = client.get(f"/tray/{slide_id}.json{query}")
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def names(content: dict[str, Any]) -> list[str]:
    return [slide["slide_id"] for slide in content["slides"]]


def openings(root: Path, slide_id: str) -> list[dict[str, Any]]:
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger:
        rows = project_history(ledger, LogFilter(subject=slide_subject(slide_id)), newest=99)
        return [json.loads(row.details) for row in rows if row.action == "slide opened"]


def test_a_case_is_listed_by_block_and_stain_and_its_links_keep_the_way_back(rita: httpx.Client) -> None:
    shown = tray(rita, "C-10", f"?slide=C-10&find=c&page=3&model={MODEL_ID}&class=positive&at=1,2,3&overlay=0.5")
    assert (shown["title"], shown["is_case"], names(shown)) == ("Case P-7", True, list(CASE))
    first = shown["slides"][0]
    assert (first["block"], first["stain"]) == ("A2", "HE")
    assert first["query"] == {"find": "c", "page": "3", "slide": "C-2", "model": MODEL_ID, "class": "positive"}


def test_without_a_case_the_neighbours_are_those_of_the_list_with_their_page(rita: httpx.Client) -> None:
    shown = tray(rita, SLIDE_ID, f"?slide={SLIDE_ID}&sort=-slide&study=")
    assert (shown["title"], shown["is_case"]) == ("Worklist", False)
    assert names(shown) == [SLIDE_ID, "D-1", "C-2", "C-10", "C-1", "B-1"]
    assert shown["slides"][1]["query"] == {"sort": "-slide", "study": "", "slide": "D-1"}
    assert names(tray(rita, SLIDE_ID, "?find=D-1")) == [], "not in that list"


def test_nobody_is_told_of_slides_that_they_may_not_see_or_still_have_to_read(
    bob: httpx.Client, eva: httpx.Client
) -> None:
    assert names(tray(bob, "C-10")) == ["C-2", "C-10", "C-1"]
    assert bob.get("/tray/B-1.json").status_code == 404
    assert names(tray(eva, "C-10")) == ["C-10", "B-1"]
    found = eva.get("/find/slides.json?words=&beside=C-10").json()
    assert names(found) == ["C-10", "B-1", "D-1", SLIDE_ID]
    assert names(bob.get("/find/slides.json?words=&beside=D-1").json()) == ["C-1", "C-10", "C-2"]


def test_slides_are_found_by_name_block_and_stain_those_of_the_block_first(rita: httpx.Client) -> None:
    def found(words: str) -> list[tuple[str, str]]:
        answer = rita.get("/find/slides.json", params={"words": words, "beside": "C-2"}).json()
        return [(slide["slide_id"], slide["relation"]) for slide in answer["slides"]]

    assert found("") == [
        ("C-2", "this slide"), ("C-10", "same block"), ("C-1", "same case"), ("B-1", "same case"), ("D-1", ""),
        (SLIDE_ID, ""),
    ]  # fmt: skip
    assert found("ki-67") == [("C-10", "same block")]
    assert found("c a10") == [("C-1", "same case")]
    assert found("d-") == [("D-1", "")]
    assert found("nothing like it") == []


def test_what_is_loaded_ahead_shows_the_whole_slide_only_and_is_no_view(root: Path, rita: httpx.Client) -> None:
    slide = rita.get("/ahead/D-1/slide.json").json()
    assert (slide["levels"][0]["width_px"], slide["levels"][0]["height_px"]) == (WIDTH_PX0, HEIGHT_PX0)
    ahead, seen = rita.get("/ahead/D-1/0/0_0"), len(openings(root, "D-1"))
    assert ahead.status_code == 200
    assert seen == 0
    assert ahead.content == rita.get("/tiles/D-1/0/0_0").content
    assert len(openings(root, "D-1")) == 1, "a tile of the slide itself is a view"
    assert rita.get("/ahead/D-1/9/0_0").status_code == 404
    assert rita.get("/ahead/D-1/slide.txt").status_code == 400


def test_levels_finer_than_the_whole_slide_on_a_screen_are_not_sent_ahead(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_AHEAD_PX", WIDTH_PX0 - 1)
    cache = SlideCache(Project(root))
    refused = get(cache, f"/ahead/{SLIDE_ID}/0/0_0")
    assert (refused.status_code, "only levels of up to 1799 px" in refused.text) == (404, True)
    assert get(cache, f"/ahead/{SLIDE_ID}/1/0_0").status_code == 200


def test_an_opening_is_logged_once_before_anything_is_sent_and_not_again_by_the_page(
    root: Path, app: StartedApp, rita: httpx.Client, bob: httpx.Client
) -> None:
    assert openings(root, "C-10") == []
    opened = rita.get(f"/opened/C-10.json?model={MODEL_ID}")
    assert opened.json()["slide"]["slide_id"] == "C-10"
    assert opened.json()["layers"] == []
    assert openings(root, "C-10") == [{"page": "slide", "model": MODEL_ID}]
    with tab(app, cookie_of(rita)) as page:
        page.run("slide=C-10")
        page.run("slide=C-1")
        page.run("slide=C-10")
    assert len(openings(root, "C-10")) == 2, "opened once by the viewer, and again after another slide"
    assert bob.get("/opened/B-1.json").status_code == 404
    assert openings(root, "B-1") == []


def test_the_first_page_begins_with_the_viewer_and_the_slide_that_its_link_names(rita: httpx.Client) -> None:
    plain = rita.get("/").text
    assert f'<script type="module" async data-gemslide-page src="/viewer/{bundle_path().name}">' in plain
    assert "/opened/" not in plain
    assert '<script type="module" crossorigin src="./static/js/' in plain, "Streamlit's own part"
    named = rita.get("/", params={"slide": "C-1", "model": MODEL_ID})
    assert f'as="fetch" crossorigin href="/opened/C-1.json?model={MODEL_ID}">' in named.text
    assert int(named.headers["content-length"]) == len(named.content)
    again = rita.get(
        "/?slide=C-1", headers={"If-None-Match": "*", "If-Modified-Since": "Fri, 27 Nov 2099 00:00:00 GMT"}
    )
    assert (again.status_code, again.headers.get("etag")) == (200, None)
    assert rita.head("/?slide=C-1").content == b""


@pytest.mark.parametrize("name", ['"><script>alert(1)</script>', "../../etc", "%22%3E", "x" * 65, ".", "a b", "é"])
def test_no_text_of_a_link_gets_into_the_first_page_but_a_name(rita: httpx.Client, name: str) -> None:
    for query in ({"slide": name}, {"slide": "C-1", "model": name}):
        page = rita.get("/", params=query).text
        assert "alert(1)" not in page
        assert f"/opened/{name}" not in page
        assert f"?model={name}" not in page
