"""Many readers: one app and two tile processes really run behind nginx with the documented example."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest
from starlette.routing import Route
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from pathology_app.slides.cache import SlideCache
from pathology_app.tiles.routes import viewer_routes
from pathology_app.tiles.tile_body import MEDIA_TYPE
from pipeline.project import Project
from tests.nginx import EXAMPLE, NAME, Nginx, listening_socket, nginx_program, started_nginx
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID
from tests.pathology_app.started_app import GEMSLIDE, StartedApp, started_app

LINKS = [f"/tiles/{SLIDE_ID}/0/{col}_{row}" for col in range(4) for row in range(3)]
OTHERS = [f"/overlays/{SLIDE_ID}/{MODEL_ID}/1.png", f"/thumbnails/{SLIDE_ID}.jpg", f"/layers/{SLIDE_ID}/tissue.png"]


@dataclass(frozen=True)
class Site:
    """Two origins over the same processes: for local users, and, as documented, for people who have signed in."""

    here: Nginx
    everybody: Nginx
    pages: StartedApp
    tiles: list[StartedApp]


@pytest.fixture(scope="module")
def site(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    nginx_program()
    folder, sockets = tmp_path_factory.mktemp("site"), [listening_socket(), listening_socket()]
    root = folder / "project"  # links are stored in its ledger
    shutil.copytree(project.root, root)
    names = [word for listener in sockets for word in ("--name", f"{NAME}:{listener.getsockname()[1]}")]
    with ExitStack() as stack:

        def started(name: str, *options: str) -> StartedApp:
            command = [GEMSLIDE, "app", "--project", root, "--port", "0", *names, *options]
            return stack.enter_context(started_app(root, folder / f"{name}.log", command=command))

        pages = started("pages")
        tiles = [started(f"tiles-{index}", "--tiles-only") for index in range(2)]
        behind = pages.port, [process.port for process in tiles]
        here = stack.enter_context(started_nginx(folder / "here", sockets[0], *behind, says_who_asks=False))
        everybody = stack.enter_context(started_nginx(folder / "everybody", sockets[1], *behind))
        yield Site(here, everybody, pages, tiles)


def test_the_example_names_every_route_of_a_tile_process(cache: SlideCache) -> None:
    routes = {route.path.split("/")[1] for route in viewer_routes(cache) if isinstance(route, Route)}
    named = re.search(r"location ~ \^/\(([a-z|]+)\)/", EXAMPLE.read_text())

    assert named is not None
    assert set(named[1].split("|")) == routes


def test_tiles_come_from_both_processes_and_the_page_from_the_app(site: Site) -> None:
    with httpx.Client(base_url=site.here.url) as client:
        page = client.get(f"/?slide={SLIDE_ID}")
        through = {link: client.get(link) for link in [*LINKS, *OTHERS]}
        known = client.get(LINKS[0], headers={"If-None-Match": through[LINKS[0]].headers["etag"]})
    straight = {link: httpx.get(site.pages.url + link) for link in [*LINKS, *OTHERS]}

    assert page.headers["content-type"].startswith("text/html")
    assert {tile_answer.headers["content-type"] for link, tile_answer in through.items() if link in LINKS} == {
        MEDIA_TYPE
    }
    for link, answer in through.items():
        assert answer.status_code == 200
        assert answer.content == straight[link].content
        same = ("etag", "cache-control", "content-security-policy", "x-content-type-options")
        assert [answer.headers[name] for name in same] == [straight[link].headers[name] for name in same]
    assert (known.status_code, known.content) == (304, b"")
    answered = site.here.answered_by()
    assert all(answered[process.port] > 0 for process in (site.pages, *site.tiles))
    assert answered[site.pages.port] == 1


def test_a_tile_is_asked_of_the_same_process_each_time(site: Site) -> None:
    before = site.here.answered_by()
    with httpx.Client(base_url=site.here.url) as client:
        for _ in range(5):
            client.get(LINKS[5]).raise_for_status()

    assert sorted((site.here.answered_by() - before).values()) == [5]


def test_a_websocket_passes_to_the_app(site: Site) -> None:
    origin = site.here.url
    with connect(f"ws{origin[4:]}/_stcore/stream", origin=origin, subprotocols=["streamlit"]) as websocket:
        assert websocket.subprotocol == "streamlit"


@pytest.mark.parametrize("path", ["/", LINKS[0], *OTHERS])
def test_a_strangers_name_is_refused_through_nginx(site: Site, path: str) -> None:
    answer = httpx.get(site.everybody.url + path, headers={"Host": "evil.example"})

    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_host")


@pytest.mark.parametrize("path", ["/", *LINKS[:4], *OTHERS])
def test_without_a_session_and_with_a_forged_one_nobody_comes_in(site: Site, path: str) -> None:
    ports = [site.pages.port, *(process.port for process in site.tiles), int(site.everybody.url.rpartition(":")[2])]
    forged = "; ".join(f"gemslide_session_{port}={'A' * 43}" for port in ports)

    for headers, code in (({}, "log_in"), ({"Cookie": forged}, "session_is_over")):
        answer = httpx.get(site.everybody.url + path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, code)


def test_who_logs_in_at_the_app_is_let_in_by_the_tile_processes(site: Site) -> None:
    httpx.get(site.everybody.url)  # requests a link
    token = site.pages.next_link().partition("token=")[2]
    with httpx.Client(base_url=site.everybody.url) as client:
        assert client.get("/", params={"token": token}).status_code == 303
        assert [client.get(link).status_code for link in (*LINKS, *OTHERS)] == [200] * (len(LINKS) + len(OTHERS))


def test_a_page_of_a_stranger_gets_neither_tile_nor_websocket(site: Site) -> None:
    foreign = httpx.get(site.here.url + LINKS[0], headers={"Origin": "http://evil.example"})
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws{site.here.url[4:]}/_stcore/stream", origin="http://evil.example")

    assert (foreign.status_code, foreign.json()["code"]) == (403, "foreign_origin")
    assert refused.value.response.status_code == 403


def test_a_tile_process_has_no_pages_and_takes_no_websocket(site: Site) -> None:
    url = site.tiles[0].url

    assert httpx.get(url + "/").status_code == 404
    assert httpx.get(url + "/worklist").json()["code"] == "not_found"
    with pytest.raises(InvalidStatus):
        connect(f"ws{url[4:]}/_stcore/stream", origin=url)


def test_connections_to_nginx_are_kept(site: Site) -> None:
    place = urllib.parse.urlsplit(site.here.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    sockets = set()
    for link in LINKS[:3]:
        connection.request("GET", link)
        assert connection.getresponse().read()
        sockets.add(connection.sock)
    connection.close()

    assert len(sockets) == 1


def test_when_a_tile_process_dies_the_others_answer(site: Site) -> None:
    """Runs last: first one tile process is killed, then the other, then the app answers itself."""
    for dying, left in ((site.tiles[0], {site.tiles[1].port}), (site.tiles[1], {site.pages.port})):
        dying.process.send_signal(signal.SIGKILL)
        dying.process.wait()
        before = site.here.answered_by()

        with httpx.Client(base_url=site.here.url) as client:
            answers = [client.get(link) for link in LINKS]

        assert {answer.status_code for answer in answers} == {200}
        assert set(site.here.answered_by() - before) == left
