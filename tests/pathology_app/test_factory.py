"""The app behind the user's own server: `uvicorn --factory pathology_app.asgi:create_app`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from pathology_app.asgi import create_app
from pathology_app.jobs.offers import SLIDES_VARIABLE
from pathology_app.project.served import PROJECT_VARIABLE
from pathology_app.serving.environment import NAMES_VARIABLE
from pipeline.project import Project
from tests.pathology_app.small_project import SLIDE_ID
from tests.pathology_app.started_app import started_app
from training.foundation.errors import BadRecipeError

TILE = f"/tiles/{SLIDE_ID}/0/0_0"
FACTORY = [sys.executable, "-m", "uvicorn", "--factory", "pathology_app.asgi:create_app", "--port", "0"]


def test_any_server_lets_in_this_computer_and_asks_others_to_log_in(project: Project, tmp_path: Path) -> None:
    root = tmp_path / "project"  # links are stored in its ledger
    shutil.copytree(project.root, root)
    log = tmp_path / "server.log"
    environment = {PROJECT_VARIABLE: str(root), NAMES_VARIABLE: "slides.example.org"}
    through_proxy = {"Host": "slides.example.org", "X-Forwarded-For": "10.0.0.7", "X-Forwarded-Proto": "https"}
    # uvicorn prints its address on stderr, and its access log on stdout.
    both = ["sh", "-c", 'exec "$@" 2>&1', "sh", *FACTORY]
    with started_app(root, log, command=both, environment=environment) as app:
        with httpx.Client(base_url=app.url) as client:
            assert client.get(TILE).status_code == 401  # a public name is set in the environment
            refused = client.get("/", headers=through_proxy)
            assert refused.status_code == 401
            token = _token(app.process)
            welcome = client.get(f"/?token={token}", headers=through_proxy)
            assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
            assert "Secure" in welcome.headers["set-cookie"]
            cookie = {"Cookie": welcome.headers["set-cookie"].split(";")[0]}
            assert client.get(TILE, headers={**through_proxy, **cookie}).status_code == 200
            foreign = {**through_proxy, **cookie, "Host": "evil.example"}
            assert client.get(TILE, headers=foreign).status_code == 400
        app.process.terminate()
        assert app.process.stdout
        output = app.process.stdout.read()
    assert '"GET / HTTP/1.1" 303' in output
    assert token not in output


def _token(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    for line in process.stdout:
        if match := re.search(r"token=([\w-]+)", line):
            return match[1]
    raise AssertionError("no token on the terminal")


@pytest.mark.usefixtures("serve_project")
def test_folders_of_slides_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLIDES_VARIABLE, "/no/such/folder")
    with pytest.raises(BadRecipeError, match=r"/no/such/folder.*not the absolute path of an existing folder"):
        create_app()


@pytest.mark.usefixtures("serve_project")
def test_a_name_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMES_VARIABLE, "slides.example.org, http://x/")
    with pytest.raises(BadRecipeError, match="http://x/"):
        create_app()
