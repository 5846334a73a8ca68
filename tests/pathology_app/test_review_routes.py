"""Routes for viewings and judgements: stored with a log entry, refused if a reading forbids them."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from pathology_app.people.person import Person, Role
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.routes import declared as declared_routes
from pathology_app.slides.cache import SlideCache
from pathology_app.tiles import review_routes as review
from pathology_app.tiles import routes as tiles
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.rows import PROJECT_LOG, slide_subject
from pipeline.project import Project
from pipeline.review.verify import verify_reviews
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.proof.verify import verify_log
from tests.pathology_app.small_project import HOTSPOTS_XY_PX0, MODEL_ID, SLIDE_ID
from tests.pathology_app.small_reading import STUDY, make_reading_study, of_study, read_one

NOBODY = Person()
R1 = Person("ada", frozenset({Role.READER}), "r1")
R2 = Person("bob", frozenset({Role.READER}), "r2")
COORDINATOR = Person("eve", frozenset({Role.COORDINATOR}))
CORNERS = [[0, 0], [1000, 0], [1000, 800], [0, 800]]
LOOKED = {"looks": [{"corners": CORNERS, "um_per_px": 1.0, "seconds": 2.5, "rested_s": 2.5}], "seconds": 3.0}
SPOT = ["positive", *HOTSPOTS_XY_PX0[0]]
HOTSPOTS = f"/hotspots/{{}}/{MODEL_ID}.json"
OVERLAY = f"/overlays/{{}}/{MODEL_ID}/1.png"


class Client:
    """Client of the routes over one project, for one person."""

    def __init__(self, root: Path) -> None:
        cache = SlideCache(Project(root))
        self.app = Starlette(routes=[*tiles.viewer_routes(cache), *review.review_routes(cache)])

    def ask(self, person: Person, url: str, body: Any = None) -> httpx.Response:
        async def send_request() -> httpx.Response:
            async def app(scope: Scope, receive: Receive, send: Send) -> None:
                await self.app({**scope, "person": person}, receive, send)

            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
                return await (client.get(url) if body is None else client.post(url, json=body))

        return asyncio.run(send_request())


@pytest.fixture
def root(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Project with a study of two readers. The test names the person; sign-in is tested elsewhere."""
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    for module in (tiles, review, declared_routes):
        monkeypatch.setattr(module, "person_of", lambda scope: scope["person"])
    make_reading_study(project, tmp_path)
    yield tmp_path
    close_study_ledgers()


@pytest.fixture
def client(root: Path) -> Client:
    return Client(root)


def start(root: Path, reader: str = "r1") -> tuple[str, str]:
    """Start a reader's next reading. Return its slide, and the query that names it."""
    with open_ledger(Project(root)) as ledger:
        row = of_study(ledger).next_of(reader)
        assert row is not None
        of_study(ledger).start(reader, row.session, row.position)
        return row.slide_id, f"?study={STUDY}&reader={reader}&session={row.session}&position={row.position}"


def findings(ledger: Ledger, *study_ids: str) -> list[str]:
    return [
        finding
        for study_id in study_ids
        for finding in (*verify_log(ledger.database, study_id).findings, *verify_reviews(ledger.database, study_id))
    ]


def test_looks_are_kept_added_to_and_come_back(client: Client, root: Path) -> None:
    slide_id, query = start(root)
    assert client.ask(R1, f"/coverage/{slide_id}.json{query}", LOOKED).json() == {"seconds": 3.0}
    assert client.ask(R1, f"/coverage/{slide_id}.json{query}", LOOKED).json() == {"seconds": 6.0}
    stored = client.ask(R1, f"/coverage/{slide_id}.json{query}").json()
    assert (stored["columns"], stored["rows"], stored["cell_px0"], stored["is_kept"]) == (7, 5, 256.0, True)
    finest = np.frombuffer(base64.b64decode(stored["finest"]), np.uint8).reshape(5, 7)
    assert np.argwhere(finest).tolist() == [[row, column] for row in range(3) for column in range(4)]
    assert len(base64.b64decode(stored["tissue"])) == 35
    assert not any(base64.b64decode(client.ask(R1, f"/coverage/{slide_id}.json").json()["finest"])), "another's looks"
    with open_ledger(Project(root)) as ledger:
        entries = ledger.history(STUDY, slide_subject(slide_id))
        assert [(entry.action, entry.actor) for entry in entries[-2:]] == [("slide looked at", "r1 (web app)")] * 2
        assert findings(ledger, STUDY) == []


def test_a_reading_goes_by_its_protocols_rule_and_everything_else_by_the_default(
    project: Project, tmp_path: Path, root: Path
) -> None:
    rule = {"magnification": 5.0, "seconds": 3.0, "field_px": 400}
    other = tmp_path / "other"
    make_reading_study(project, other, slides=1, seen=rule)
    client = Client(other)
    slide_id, query = start(other)
    assert client.ask(R1, f"/coverage/{slide_id}.json{query}").json()["rule"] == {**rule, "is_of_study": True}
    default = {"magnification": 10.0, "seconds": 1.0, "field_px": 600, "is_of_study": False}
    assert client.ask(COORDINATOR, f"/coverage/{slide_id}.json").json()["rule"] == default
    assert client.ask(R1, f"/coverage/{slide_id}.json{query}", LOOKED).status_code == 200
    assert not any(base64.b64decode(client.ask(R1, f"/coverage/{slide_id}.json{query}").json()["finest"])), "2.5 s"


def test_a_time_at_rest_below_the_looks_own_is_refused(client: Client, root: Path) -> None:
    slide_id, query = start(root)
    body = {"looks": [{"corners": CORNERS, "um_per_px": 1, "seconds": 2, "rested_s": 1}], "seconds": 1}
    answer = client.ask(R1, f"/coverage/{slide_id}.json{query}", body)
    assert (answer.status_code, "at least these seconds" in answer.text) == (400, True)


def test_hotspots_are_judged_one_by_one_and_only_those_of_the_list(client: Client, root: Path) -> None:
    url = HOTSPOTS.format("S-001")
    assert client.ask(COORDINATOR, url).json() == {"judged": []}
    assert client.ask(NOBODY, url, {"judged": [[*SPOT, "accepted"]]}).json() == {"kept": 1}
    assert client.ask(NOBODY, url).json() == {"judged": [[*SPOT, "accepted"]]}
    assert client.ask(COORDINATOR, url, {"judged": [[*SPOT, "accepted"]]}).status_code == 403, "may not judge"
    unknown = client.ask(NOBODY, url, {"judged": [["positive", 1, 2, "accepted"]]})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_name")
    with open_ledger(Project(root)) as ledger:
        assert [e.action for e in ledger.history(PROJECT_LOG, slide_subject("S-001"))] == ["hotspot accepted"]
        assert findings(ledger, STUDY, PROJECT_LOG) == []


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"looks": []},
        {**LOOKED, "more": 1},
        {"looks": [{"corners": CORNERS[:3], "um_per_px": 1, "seconds": 1, "rested_s": 1}], "seconds": 1},
        {"looks": [{"corners": CORNERS, "um_per_px": 0, "seconds": 1, "rested_s": 1}], "seconds": 1},
        {"looks": [{"corners": CORNERS, "um_per_px": 1, "seconds": -1, "rested_s": 1}], "seconds": 1},
        {"looks": [{"corners": CORNERS, "um_per_px": 1, "seconds": 1, "rested_s": 1}] * 201, "seconds": 1},
        {"looks": [{"corners": CORNERS, "um_per_px": 1, "seconds": 1, "rested_s": 1e6}], "seconds": 1},
        {"looks": [{"corners": CORNERS, "um_per_px": 1, "seconds": 1}], "seconds": 1},
        {"looks": [{"corners": [["x", 0], *CORNERS[1:]], "um_per_px": 1, "seconds": 1, "rested_s": 1}], "seconds": 1},
    ],
)
def test_what_is_no_look_is_refused_and_nothing_is_kept(client: Client, root: Path, body: Any) -> None:
    slide_id, query = start(root)
    answer = client.ask(R1, f"/coverage/{slide_id}.json{query}", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_link")
    assert client.ask(R1, f"/coverage/{slide_id}.json{query}").json()["seconds"] == 0


def test_a_reading_takes_looks_of_its_own_reader_while_it_is_started_and_no_others(client: Client, root: Path) -> None:
    slide_id, query = start(root)
    url = f"/coverage/{slide_id}.json"
    assert client.ask(R2, url + query, LOOKED).status_code == 403
    assert client.ask(COORDINATOR, url + query, LOOKED).status_code == 403
    other = next(name for name in ("S-001", "S-002") if name != slide_id)
    for wrong in (
        f"/coverage/{other}.json{query}",
        f"{url}{query[:-1]}9",
        f"{url}?study={STUDY}",
        f"{url}?study=nobody&reader=r1&session=1&position=1",
        f"{url}{query.replace('position=1', 'position=2')}",
    ):
        answer = client.ask(R1, wrong, LOOKED)
        assert (answer.status_code, "manifest" in answer.json()["code"]) == (400, True), wrong
    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r1", "benign")
    assert client.ask(R1, url + query, LOOKED).json() == {"is_kept": False}
    assert client.ask(R1, url + query).json()["seconds"] == 0


def test_looking_at_a_slide_makes_no_ledger_and_judging_does(project: Project, tmp_path: Path, root: Path) -> None:
    (root / "gemslide.db").unlink()
    client = Client(root)
    assert client.ask(NOBODY, "/coverage/S-001.json").json()["is_kept"] is False
    assert client.ask(NOBODY, "/coverage/S-001.json", LOOKED).json()["is_kept"] is False
    assert not (root / "gemslide.db").exists()
    assert client.ask(NOBODY, HOTSPOTS.format("S-001"), {"judged": [[*SPOT, "seen"]]}).json() == {"kept": 0}
    assert not (root / "gemslide.db").exists()
    client.ask(NOBODY, HOTSPOTS.format("S-001"), {"judged": [[*SPOT, "accepted"]]})
    assert client.ask(NOBODY, "/coverage/S-001.json", LOOKED).json() == {"seconds": 3.0}


def test_a_crop_is_a_small_picture_of_the_place(client: Client) -> None:
    answer = client.ask(NOBODY, f"/crops/{SLIDE_ID}/480_864.jpg")
    assert answer.headers["content-type"] == "image/jpeg"
    pixels = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert pixels.shape == (review.CROP_PX, review.CROP_PX, 3)
    assert pixels.std() > 10
    for wrong in ("1800_0.jpg", "0_1300.jpg", "-1_0.jpg", "1_2.png", "999999999_1.jpg"):
        assert client.ask(NOBODY, f"/crops/{SLIDE_ID}/{wrong}").status_code == 400


def test_nothing_of_a_model_is_answered_of_a_slide_that_is_still_to_be_read_without_help(
    client: Client, root: Path
) -> None:
    slide_id, _ = start(root)
    heat_map = f"/heatmaps/{slide_id}/{MODEL_ID}/1.png"
    paths = (OVERLAY.format(slide_id), HOTSPOTS.format(slide_id), f"/crops/{slide_id}/480_864.jpg", heat_map)
    for path in paths:
        for person in (R1, R2, NOBODY):  # r2 has not even begun
            answer = client.ask(person, path)
            assert (answer.status_code, answer.json()["code"]) == (403, "blinded"), (path, person)
            assert answer.headers["cache-control"] == "no-store"
        assert client.ask(COORDINATOR, path).status_code == 200
    assert client.ask(R1, HOTSPOTS.format(slide_id), {"judged": [[*SPOT, "seen"]]}).status_code == 403
    assert client.ask(R1, f"/tiles/{slide_id}/0/0_0").status_code == 200
    with open_ledger(Project(root)) as ledger:
        read_one(of_study(ledger), "r1", "benign")
    for path in paths:
        assert client.ask(R1, path).status_code == 200, "signed"
        assert client.ask(NOBODY, path).status_code == 200, "nobody has it open"
        assert client.ask(R2, path).status_code == 403


def test_an_assisted_reading_shows_predictions_while_an_unassisted_one_of_the_slide_is_to_come(
    project: Project, tmp_path: Path, root: Path
) -> None:
    other = tmp_path / "crossover"
    other.mkdir()
    make_reading_study(project, other, arms=["unassisted", "assisted"])
    client = Client(other)
    with open_ledger(Project(other)) as ledger:
        rows = {reader: of_study(ledger).next_of(reader) for reader in ("r1", "r2")}
        (reader,) = (name for name, row in rows.items() if row.arm == "assisted")
    person = {"r1": R1, "r2": R2}[reader]
    assert client.ask(person, OVERLAY.format(rows[reader].slide_id)).status_code == 403, "not before it is started"
    slide_id, query = start(other, reader)
    assert client.ask(person, OVERLAY.format(slide_id)).status_code == 200
    assert client.ask(person, HOTSPOTS.format(slide_id) + query, {"judged": [[*SPOT, "rejected"]]}).json() == {
        "kept": 1
    }
    with open_ledger(Project(other)) as ledger:
        last = ledger.history(STUDY, slide_subject(slide_id))[-1]
        assert (last.action, json.loads(last.details)["reading"]) == ("hotspot rejected", f"{reader}/1/1")
        read_one(of_study(ledger), reader, "benign")
    assert client.ask(person, OVERLAY.format(slide_id)).status_code == 403, "it is to be read without help, too"


def test_where_the_ledger_cannot_be_asked_nothing_is_shown(client: Client, root: Path) -> None:
    close_study_ledgers()
    (root / "gemslide.db").write_bytes(b"no database at all" * 100)
    assert client.ask(NOBODY, OVERLAY.format("S-001")).status_code == 500
    assert client.ask(COORDINATOR, OVERLAY.format("S-001")).status_code == 200
