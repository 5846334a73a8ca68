"""Routes of registrations: rights, other people's slides, hostile bodies, and what readers may not see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from pathology_app.people.person import PERSON_KEY, Person, Role
from pathology_app.project.ledger import StudyLedger, close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.registering.bodies import MAX_BYTES
from pathology_app.registering.routes import registration_routes
from pathology_app.slides.cache import SlideCache
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.rows import PROJECT_LOG
from pipeline.project import Project
from pipeline.registration import Affine
from pipeline.review import verify_reviews
from pipeline.settings.site import LEDGER_VARIABLE
from tests.pipeline.registration.tissue_pictures import (
    MPP,
    ingested,
    largest_error_um,
    stained,
    tissue,
    transform,
    warped,
)

ADA = Person("ada", frozenset({Role.REVIEWER}))
ONLY_ONE = Person("bob", frozenset({Role.REVIEWER}), slides=("one",))
COORDINATOR = Person("eve", frozenset({Role.COORDINATOR}))
POINTS = {"points": [[[100, 100], [150, 120]], [[600, 400], [650, 425]]]}
TRUTH = transform(140.0)


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("registering"))
    ingested(project, "one", stained(tissue(1)))
    ingested(project, "other", warped(stained(tissue(1)), TRUTH))
    return project


class Client:
    """Client of the routes over one project, for one person."""

    def __init__(self, project: Project) -> None:
        self.app = Starlette(routes=registration_routes(SlideCache(project), StudyLedger(project)))

    def ask(self, person: Person, url: str, body: Any = None, content: bytes | None = None) -> httpx.Response:
        async def send_request() -> httpx.Response:
            async def app(scope: Scope, receive: Receive, send: Send) -> None:
                await self.app({**scope, PERSON_KEY: person}, receive, send)

            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
                if body is None and content is None:
                    return await client.get(url)
                return await client.post(url, content=content or json.dumps(body).encode())

        return asyncio.run(send_request())


@pytest.fixture
def project(slides: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """The slides in a project without a ledger."""
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    project = Project(tmp_path)
    project.slides_dir.mkdir()
    for slide_id in ("one", "other"):
        project.store_path(slide_id).symlink_to(slides.store_path(slide_id))
    yield project
    close_study_ledgers()


@pytest.fixture
def client(project: Project) -> Client:
    return Client(project)


def test_clicked_points_are_saved_and_shown_both_ways(client: Client, project: Project) -> None:
    assert client.ask(ADA, "/registrations/one.json?to=other").json() == {"registrations": []}
    assert not (project.root / "gemslide.db").exists(), "viewing creates no ledger"
    made = client.ask(ADA, "/registrations/one/other/points", POINTS)
    assert made.status_code == 200
    assert (made.json()["by"], made.json()["method"], made.json()["is_outdated"]) == ("ada (web app)", "points", False)
    assert made.json()["error"].startswith("error ")
    [seen] = client.ask(COORDINATOR, "/registrations/one.json?to=other").json()["registrations"]
    assert seen == made.json()
    [back] = client.ask(ADA, "/registrations/other.json?to=one,missing").json()["registrations"]
    assert Affine(*back["matrix_um"]).after(Affine(*seen["matrix_um"])).numbers == pytest.approx((1, 0, 0, 0, 1, 0))
    assert client.ask(ADA, "/registrations/other/one/remove", {}).json() == {"removed": True}
    assert client.ask(ADA, "/registrations/one.json?to=other").json() == {"registrations": []}
    with open_ledger(project) as ledger:
        assert verify_reviews(ledger.database, PROJECT_LOG) == []


def test_the_tissue_is_registered_in_a_process_of_its_own(client: Client) -> None:
    made = client.ask(ADA, "/registrations/one/other/tissue", {})
    assert made.status_code == 200, made.text
    found = Affine(*made.json()["matrix_um"]).scaled(moving=1 / MPP, fixed=1 / MPP)
    assert largest_error_um(found, TRUTH, mpp_fixed=MPP) < 10
    assert made.json()["method"] == "features"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"null", b"{", b'{"points": 1}', b'{"points": [], "more": 1}', b'{"points": [[[1, 2], [3]]]}',
        b'{"points": [[[1, 2], [3, NaN]]]}', b'{"points": [[[1, 2], [3, 1e999]]]}', b'{"points": [[[1, 2], [3, "4"]]]}',
        b'{"points": [[[1, 2], [3, true]]]}', b'{"points": [[[1, 2], [3, 1e300]]]}', b"[" * 9000,
        json.dumps({"points": [[[1, 2], [3, 4]]] * 51}).encode(), b"\xff\xfe",
    ],
)  # fmt: skip
def test_what_is_no_list_of_points_is_refused(client: Client, content: bytes) -> None:
    answer = client.ask(ADA, "/registrations/one/other/points", content=content or b" ")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_link")


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "0 pairs of points"),
        ([[[1, 1], [2, 2]]], "1 pairs of points"),
        ([[[1, 1], [2, 2]], [[1, 1], [90, 90]]], "of each other"),
        ([[[1, 1], [1, 1]], [[90, 90], [90, 90]], [[200, 200], [200, 200]]], "on one line"),
        ([[[1, 1], [1, 1]], [[1e9, 90], [90, 90]]], "is not on the slide"),
    ],
)
def test_points_that_determine_nothing_are_refused_with_the_reason(client: Client, points: Any, message: str) -> None:
    answer = client.ask(ADA, "/registrations/one/other/points", {"points": points})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_annotation")
    assert message in answer.json()["message"]


def test_a_body_that_is_too_long_is_refused(client: Client) -> None:
    answer = client.ask(ADA, "/registrations/one/other/points", content=b" " * (MAX_BYTES + 1))
    assert answer.status_code == 413


def test_slides_that_are_not_there_are_refused(client: Client) -> None:
    for url in ("/registrations/one/none/points", "/registrations/none/one/points"):
        assert client.ask(ADA, url, POINTS).status_code == 404
    assert client.ask(ADA, "/registrations/one/one/points", POINTS).status_code == 422
    assert client.ask(ADA, "/registrations/none.json?to=one").status_code == 404
    for query in ("", "?to=", "?to=..%2fx", "?to=" + ",".join(["a"] * 9)):
        assert client.ask(ADA, f"/registrations/one.json{query}").status_code == 400
    assert client.ask(ADA, "/registrations/one/x").status_code == 400


def test_who_may_not_annotate_sees_and_saves_nothing(client: Client) -> None:
    for way in ("points", "tissue", "remove"):
        answer = client.ask(COORDINATOR, f"/registrations/one/other/{way}", POINTS if way == "points" else {})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert client.ask(COORDINATOR, "/registrations/one.json?to=other").json() == {"registrations": []}


def test_a_slide_that_a_person_may_not_see_is_neither_named_nor_registered(client: Client) -> None:
    client.ask(ADA, "/registrations/one/other/points", POINTS)
    assert client.ask(ONLY_ONE, "/registrations/one.json?to=other").json() == {"registrations": []}
    for url in ("/registrations/one/other/points", "/registrations/other/one/points"):
        hidden, missing = (client.ask(ONLY_ONE, url.replace("other", name), POINTS) for name in ("other", "none"))
        assert (hidden.status_code, hidden.json()["code"]) == (404, "unknown_name")
        assert hidden.json()["message"].replace("other", "none") == missing.json()["message"]
    assert client.ask(ONLY_ONE, "/registrations/other.json?to=one").status_code == 404


def test_a_slide_ingested_from_another_file_makes_it_outdated(client: Client, project: Project, tmp_path: Path) -> None:
    client.ask(ADA, "/registrations/one/other/points", POINTS)
    project.store_path("other").unlink()
    ingested(project, "other", stained(tissue(6)))
    [seen] = client.ask(ADA, "/registrations/one.json?to=other").json()["registrations"]
    assert seen["is_outdated"]
