"""Signing in to and out of a running app."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pathology_app.access.slide_gate import SLIDE_FOLDERS
from pathology_app.people.account_file import ACCOUNTS_FILE, changing_accounts
from pathology_app.people.person import Role
from pathology_app.routes.paths import FOLDERS
from pipeline.ledger import PROJECT_LOG, LogFilter, find_ledger, project_history
from pipeline.project import Project
from pipeline.study import verify_log
from tests.pathology_app.signed_in import PASSWORD, add_people, browser, cookie_of, hashed, sign_in
from tests.pathology_app.small_attention import SLIDE_MODEL, write_small_attention
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.small_study import make_study
from tests.pathology_app.started_app import StartedApp, started_app

pytestmark = pytest.mark.xdist_group("sign_in")

TILE = f"/tiles/{SLIDE_ID}/0/0_0"
OF_SLIDE = (
    TILE, f"/overlays/{SLIDE_ID}/{MODEL_ID}/0.png", f"/layers/{SLIDE_ID}/tissue.png", f"/thumbnails/{SLIDE_ID}.jpg",
)  # fmt: skip

EVERYTHING = (
    *OF_SLIDE, f"/colour/{SLIDE_ID}", f"/damaged/{SLIDE_ID}.png", f"/heatmaps/{SLIDE_ID}/{MODEL_ID}/0.png",
    f"/exports/{SLIDE_ID}/{MODEL_ID}/predictions.csv", f"/annotations/{SLIDE_ID}/changes",
    f"/annotations/{SLIDE_ID}/qupath.geojson", f"/coverage/{SLIDE_ID}.json", f"/hotspots/{SLIDE_ID}/{MODEL_ID}.json",
    f"/crops/{SLIDE_ID}/100_100.jpg", f"/registrations/{SLIDE_ID}.json?to=S-002", f"/reports/{SLIDE_ID}/report.html",
    f"/ahead/{SLIDE_ID}/slide.json", f"/opened/{SLIDE_ID}.json", f"/tray/{SLIDE_ID}.json",
)  # fmt: skip
"""One link per route that has a slide in its path."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("accounts")
    make_project(root)
    make_study(root)
    add_people(root)
    write_small_attention(Project(root), slides=(SLIDE_ID, "S-002"))
    return root


@pytest.fixture(scope="module")
def app(root: Path) -> Iterator[StartedApp]:
    with started_app(root, root / "server.log") as app:
        yield app
    log_text = (root / "server.log").read_text()
    assert "Traceback" not in log_text, log_text


@pytest.fixture
def client(app: StartedApp) -> Iterator[httpx.Client]:
    with browser(app.url) as client:
        yield client


def entries(root: Path, **wanted: str) -> list[tuple[str, str, str]]:
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger:
        return [(row.actor, row.action, row.subject) for row in project_history(ledger, LogFilter(**wanted), newest=99)]


def test_nobody_sees_anything_before_signing_in_and_comes_back_to_the_page_asked_for(client: httpx.Client) -> None:
    answer = client.get(f"/?slide={SLIDE_ID}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sign-in?next=/%3Fslide%3D{SLIDE_ID}")
    assert [client.get(path).status_code for path in (*OF_SLIDE, "/static/index.html", "/log.csv")] == [401] * 6
    welcome = sign_in(client, "rita", next=f"/?slide={SLIDE_ID}")
    assert (welcome.status_code, welcome.headers["location"]) == (303, f"/?slide={SLIDE_ID}")
    assert [client.get(path).status_code for path in OF_SLIDE] == [200] * 4
    assert "Cookie" in client.get(TILE).headers["vary"]


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "/\nx", "/sign-out"])
def test_after_signing_in_the_way_leads_to_own_pages_only(client: httpx.Client, wanted: str) -> None:
    assert sign_in(client, "rita", next=wanted).headers["location"] == "/"


def test_what_was_wrong_is_not_said(client: httpx.Client) -> None:
    answers = [sign_in(client, name, "wrong wrong wrong") for name in ("rita", "nobody-here", "x" * 64)]
    assert {answer.status_code for answer in answers} == {401}
    texts = {answer.text.split('role="alert">')[1].split("</p>")[0] for answer in answers}
    assert texts == {"Name and password do not match."}


def test_a_session_that_was_signed_out_is_worth_nothing_to_who_copied_it(client: httpx.Client, app: StartedApp) -> None:
    sign_in(client, "rita")
    copied = {"cookie": cookie_of(client)}
    assert httpx.get(app.url + TILE, headers=copied).status_code == 200
    page = client.get("/sign-out").text
    token = page.split('name="form" value="')[1].split('"')[0]
    assert "You are signed out." in client.post("/sign-out", data={"form": token}).text
    assert httpx.get(app.url + TILE, headers=copied).status_code == 401


def test_nobody_is_signed_out_by_a_page_of_strangers(client: httpx.Client, app: StartedApp) -> None:
    sign_in(client, "rita")
    cookie = cookie_of(client)
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        answer = httpx.post(app.url + "/sign-out", headers={"cookie": cookie, **headers}, data={"form": "x"})
        assert answer.status_code == 403
    client.post("/sign-out", data={"form": "guessed"})
    assert client.get(TILE).status_code == 200


def test_a_session_is_drawn_anew_whatever_a_browser_brings_along(client: httpx.Client, app: StartedApp) -> None:
    name = f"gemslide_session_{app.port}"
    client.cookies.set(name, "chosen-by-somebody-else", domain="127.0.0.1")
    welcome = sign_in(client, "rita")
    assert "chosen-by-somebody-else" not in welcome.headers["set-cookie"]
    forged = httpx.get(app.url + TILE, headers={"cookie": f"{name}=chosen-by-somebody-else"})
    assert (forged.status_code, forged.json()["code"]) == (401, "session_is_over")


def test_other_peoples_slides_are_not_there(client: httpx.Client, root: Path) -> None:
    sign_in(client, "bob")
    for path in EVERYTHING:
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_name")
        assert client.get(path.replace(SLIDE_ID, "S-999")).json()["message"] == answer.json()["message"].replace(
            SLIDE_ID, "S-999"
        )


@pytest.mark.parametrize(
    ("name", "slides", "status"),
    [("kim", (SLIDE_ID, "S-002"), 200), ("dora", (SLIDE_ID,), 404), ("dan", ("S-*",), 200), ("eli", ("S-002",), 404)],
)
def test_a_patient_s_result_is_not_there_for_who_may_not_see_each_of_its_slides(
    client: httpx.Client, root: Path, name: str, slides: tuple[str, ...], status: int
) -> None:
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        own = {"name": name, "roles": (Role.READER,), "password": hashed(), "slides": slides}
        accounts.append(accounts[0].model_copy(update=own))
    sign_in(client, name)
    url = f"/overlays/{SLIDE_ID}/{SLIDE_MODEL}/attention.png"
    answer = client.get(url)
    assert answer.status_code == status
    assert client.get(OF_SLIDE[1]).status_code == (200 if SLIDE_ID in slides or "S-*" in slides else 404)
    if name == "dora":
        missing = client.get(url.replace(SLIDE_MODEL, "none-1"))
        assert missing.status_code == 404
        assert answer.json() == json.loads(missing.text.replace("none-1", SLIDE_MODEL)), "as for one that is not there"
        assert "S-002" not in answer.text


def test_every_folder_with_slides_is_among_those_that_are_tried() -> None:
    assert {path.split("/")[1] for path in EVERYTHING} == set(SLIDE_FOLDERS.split())
    assert set(FOLDERS.split()) - set(SLIDE_FOLDERS.split()) == {"static", "viewer", "find"}


def test_nobody_sends_anything_about_other_peoples_slides(client: httpx.Client) -> None:
    sign_in(client, "bob")
    for path in (
        f"/annotations/{SLIDE_ID}",
        f"/coverage/{SLIDE_ID}.json",
        f"/hotspots/{SLIDE_ID}/{MODEL_ID}.json",
        f"/registrations/{SLIDE_ID}/S-002/points",
        f"/registrations/S-002/{SLIDE_ID}/tissue",
    ):
        assert client.post(path, json={}).status_code == 404


def test_a_role_that_may_not_annotate_sends_no_annotations(client: httpx.Client) -> None:
    sign_in(client, "cora")
    answer = client.post(f"/annotations/{SLIDE_ID}", json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_the_log_is_for_those_who_may_see_it(client: httpx.Client, app: StartedApp) -> None:
    sign_in(client, "cora")
    assert client.get("/log.csv").json()["code"] == "forbidden"
    with browser(app.url) as admins:
        sign_in(admins, "ada")
        answer = admins.get("/log.csv", params={"person": "ada"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert rows[0]["what"] == "signed in"
    assert {row["who"] for row in rows} <= {"ada (web app)", "ada"}, "the study was begun from the command line"


def test_tiles_without_a_page_are_a_view_in_the_log_once(client: httpx.Client, root: Path) -> None:
    sign_in(client, "cora")
    for path in (TILE, TILE.replace("0_0", "1_0"), OF_SLIDE[1]):
        assert client.get(path).status_code == 200
    assert entries(root, actor="cora", subject=f"slide {SLIDE_ID}") == [
        ("cora (web app)", "slide opened", f"slide {SLIDE_ID}")
    ]


def test_who_is_removed_is_out_at_the_next_request(client: httpx.Client, root: Path) -> None:
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts.append(accounts[0].model_copy(update={"name": "eve", "roles": (Role.READER,)}))
    sign_in(client, "eve")
    assert client.get(TILE).status_code == 200
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts[:] = [account for account in accounts if account.name != "eve"]
    assert client.get(TILE).status_code == 401


def test_a_second_process_knows_the_session_and_that_it_ended(client: httpx.Client, root: Path) -> None:
    sign_in(client, "rita")
    session = cookie_of(client).partition("=")[2]
    with started_app(root, root / "second.log") as second:
        name = f"gemslide_session_{second.port}"
        answer = httpx.get(second.url + TILE, headers={"cookie": f"{name}={session}"})
        assert answer.status_code == 200


def test_guessing_is_stopped_and_does_not_stop_others(client: httpx.Client, root: Path) -> None:
    with changing_accounts(root / ACCOUNTS_FILE) as accounts:
        accounts.append(accounts[0].model_copy(update={"name": "vic", "roles": (Role.READER,), "password": hashed()}))
    answers = [sign_in(client, "vic", f"guess number {number}").status_code for number in range(11)]
    assert (answers[0], answers[-1]) == (401, 429)
    assert sign_in(client, "vic", PASSWORD).status_code == 429
    assert sign_in(client, "rita").status_code == 303


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, b"x" * 20_000, 413),
        ({"Transfer-Encoding": "chunked"}, None, 411),
        ({"Origin": "http://evil.example"}, b"name=ada", 403),
        ({"Sec-Fetch-Site": "cross-site"}, b"name=ada", 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"name=ada&password=x", 403),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x\r\nnonsense", 403),
        ({"Content-Type": "multipart/form-data"}, b"name=ada", 403),
        ({"Content-Type": "multipart/form-data; boundary=a"}, b"--b\r\nzz", 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"name=%ff&form=x", 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"\xff\xfe", 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"&".join([b"name=ada"] * 9), 403),
    ],
)
def test_a_form_that_is_not_ours_is_refused(
    client: httpx.Client, headers: dict[str, str], body: bytes | None, status: int
) -> None:
    content = body if body is not None else iter([b"name=ada"])
    assert client.post("/sign-in", headers=headers, content=content).status_code == status


def test_a_link_on_a_page_of_others_finds_the_session(client: httpx.Client) -> None:
    """The browser withholds the cookie at first; our own page then repeats the request with it."""
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    del client.headers["Origin"]
    answer = client.get(f"/?slide={SLIDE_ID}", headers=followed)
    assert answer.status_code == 200
    assert f'http-equiv="refresh" content="0; url=/?slide={SLIDE_ID}"' in answer.text


def test_a_browser_cannot_say_who_it_is(client: httpx.Client) -> None:
    sign_in(client, "cora")
    assert client.get("/log.csv", headers={"X-Gemslide-Visitor": "x ada"}).status_code == 403


def test_all_of_it_is_in_the_log_which_verifies(root: Path, app: StartedApp, client: httpx.Client) -> None:
    sign_in(client, "ada")
    assert ("ada (web app)", "signed in", "person ada") in entries(root)
    opened = find_ledger(Project(root))
    assert opened
    with opened as ledger:
        assert verify_log(ledger.database, PROJECT_LOG).findings == ()


def test_an_accounts_file_that_others_can_read_lets_nobody_in(client: httpx.Client, root: Path) -> None:
    sign_in(client, "rita")
    path = root / ACCOUNTS_FILE
    path.chmod(0o644)
    try:
        answer = client.get(TILE)
        assert (answer.status_code, answer.json()["code"]) == (503, "cannot_know")
        assert str(root) not in answer.text
    finally:
        path.chmod(0o600)
    assert client.get(TILE).status_code == 200


def test_without_its_file_the_app_lets_nobody_in(client: httpx.Client, root: Path) -> None:
    path = root / ACCOUNTS_FILE
    path.rename(path.with_suffix(".away"))
    try:
        assert client.get(TILE).status_code == 401
        assert json.loads(client.get("/log.csv", headers={"Accept": "*/*"}).text)["code"] == "log_in"
    finally:
        path.with_suffix(".away").rename(path)
