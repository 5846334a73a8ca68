"""Strangers and hostile files in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from pipeline.units import RESEARCH_USE
from tests.browser.conftest import ARTIFACTS, wait_for
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_project
from tests.pathology_app.started_app import StartedApp, started_app

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page


class Listener:
    """A stranger's server that counts its visitors."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.callers = 0
        threading.Thread(target=self._take, daemon=True).start()

    @property
    def hostile(self) -> str:
        """Markdown and HTML that fetch from this server unless they are shown as text."""
        url = f"http://127.0.0.1:{self.port}/leak.png"
        return f"![x]({url})<img src={url}>[:red[y]]({url})"

    def _take(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            self.callers += 1
            connection.close()


@pytest.fixture(scope="module")
def listener() -> Listener:
    return Listener()


@pytest.fixture(scope="module")
def hostile_app(tmp_path_factory: pytest.TempPathFactory, listener: Listener) -> Iterator[StartedApp]:
    """The app over a project in which every name that can be hostile is hostile."""
    root = tmp_path_factory.mktemp("hostile")
    project = make_project(root)
    make_many_slides(project, root, 60)
    text = json.dumps(listener.hostile)
    store = project.store_path(SLIDE_ID)
    _replace(store / "predictions" / MODEL_ID / "zarr.json", '"positive"', text)
    _replace(project.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json", '"positive"', text)
    version = project.store_path("bad-version")
    shutil.copytree(store, version)
    content = json.loads((version / "zarr.json").read_text())
    content["attributes"]["gemslide"].update(slide_id="bad-version", contract_version=listener.hostile)
    (version / "zarr.json").write_text(json.dumps(content))
    # A folder's name has no slashes: the browser takes backslashes for them.
    backslashed = listener.hostile.replace("/", "\\")
    shutil.copytree(store, project.slides_dir / f"{backslashed}.ome.zarr")
    shutil.copytree(store / "predictions" / MODEL_ID, store / "predictions" / "![a model](x)")
    with started_app(root, root / "server.log") as app:
        yield app


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new))


def test_hostile_names_are_shown_as_text_and_no_folder_is_named(
    page: Page, hostile_app: StartedApp, listener: Listener
) -> None:
    """If one were rendered, the page's policy would also block its request: the console reports it and `page` fails."""
    hostile = listener.hostile
    received: list[bytes] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(_bytes(frame))))
    page.on("response", lambda response: received.append(str(response.headers).encode()))
    for link, shown in (
        (f"?slide={SLIDE_ID}&model={MODEL_ID}", f"P({hostile})"),
        ("?slide=bad-version", f"contract version '{hostile[:30]}"),
        ("", "63 of 63 slides"),
        (f"?slide={quote(hostile)}", f"slide '{hostile}': not a name."),
        (f"?slide={SLIDE_ID}&model={quote('![a model](x)')}", "No predictions of model '![a model](x)'"),
        (f"?slide={SLIDE_ID}&model={quote(hostile)}", f"No predictions of model '{hostile}'"),
    ):
        page.goto(f"{hostile_app.url}/{link}")
        as_seen = re.escape(shown).replace(":", ":\u2060?")  # the joiner has no width
        page.get_by_text(re.compile(as_seen)).first.wait_for()
        found = page.locator("[src*='leak.png'], [href*='leak.png']:not([href^='?'], [href^='/?'])")
        assert found.count() == 0, found.first.evaluate("e => e.outerHTML")

    page.wait_for_load_state("networkidle")
    assert listener.callers == 0
    assert sum(map(len, received)) > 10_000
    # A browser on this computer is told the command for napari, and with it the project's folder.
    command_text = f"--project {hostile_app.log.parent}".encode()
    received = [data.replace(command_text, b"") for data in received]
    secrets = [str(hostile_app.log.parent), sys.prefix, str(Path(__file__).parents[2]), str(Path.home()) + "/"]
    assert not [secret for secret in secrets if any(secret.encode() in data for data in received)]


def _bytes(frame: bytes | str) -> bytes:
    return frame if isinstance(frame, bytes) else frame.encode()


def test_the_worklist_is_paged(page: Page, hostile_app: StartedApp) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    with page.expect_response(lambda response: "/thumbnails/" in response.url):
        page.goto(hostile_app.url)
        page.get_by_text("Page 1 of 2").wait_for()
    page.screenshot(path=ARTIFACTS / "worklist-paged.png")

    page.get_by_role("button", name="Next").click()

    page.get_by_text("Page 2 of 2").wait_for()
    assert "page=2" in page.url
    assert page.get_by_role("button", name="Next").is_disabled()
    page.goto(f"{hostile_app.url}/?page=2&slide=many-00055")
    page.get_by_role("button", name="Worklist").click()
    page.get_by_text("Page 2 of 2").wait_for()


def test_a_printed_link_lets_one_browser_in(context: BrowserContext, page: Page, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_project(root)
    options = ("--login", "--host", "0.0.0.0", "--name", "127.0.0.1")
    with started_app(root, tmp_path / "server.log", *options) as app:
        link = app.next_link()
        url = link.partition("/?")[0]
        page.goto(url)
        page.get_by_role("heading", name="Log in").wait_for()
        assert page.get_by_text(RESEARCH_USE).is_visible()
        page.set_viewport_size({"width": 1280, "height": 800})
        page.screenshot(path=ARTIFACTS / "log-in.png")

        page.goto(link)
        page.get_by_text("1 of 1 slide").wait_for()
        assert page.url == f"{url}/"
        page.goto(f"{url}/?slide={SLIDE_ID}")
        wait_for(page, "window.__gemslide && window.__gemslide.isSettled()")

        context.clear_cookies()
        page.goto(link)
        page.get_by_text("This link has been used").wait_for()
        page.goto(app.next_link())
        page.get_by_text("1 of 1 slide").wait_for()
