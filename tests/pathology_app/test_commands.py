"""`gemslide app` and `gemslide view` when they cannot start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pathology_app import commands
from pathology_app.callers.host_names import Names
from pathology_app.server import CannotListenError, listen, shown_name
from pipeline.settings.config import load_settings


def run(*arguments: str) -> Result:
    verbs = typer.Typer()
    verbs.command()(commands.app)
    verbs.command()(commands.view)
    return CliRunner().invoke(verbs, list(arguments))


@pytest.mark.parametrize(
    ("verb", "library", "extra"), [("app", "streamlit", "gemslide[app]"), ("view", "napari", "gemslide[desktop]")]
)
def test_a_missing_extra_is_named(tmp_path: Path, verb: str, library: str, extra: str) -> None:
    program = (
        f"import sys, typer; sys.modules[{library!r}] = None; from pathology_app import commands; "
        "verbs = typer.Typer(); verbs.command()(commands.app); verbs.command()(commands.view); verbs()"
    )
    arguments = [verb, *(["--project", str(tmp_path)] if verb == "app" else [str(tmp_path)])]

    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "DISPLAY": ":99"}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert result.returncode == 1
    assert f"pip install '{extra}'" in result.stderr


def test_view_without_a_display_is_one_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)

    result = run("view", str(tmp_path))

    assert result.exit_code == 1
    assert "no display" in result.stderr


def test_a_taken_port_is_one_message_unless_another_may_do() -> None:
    with listen("127.0.0.1", [0]) as first:
        taken = first.getsockname()[1]

        with pytest.raises(CannotListenError, match=f"port {taken}: Address already in use.*--port"):
            listen("127.0.0.1", [taken])
        with listen("127.0.0.1", [taken, 0]) as second:
            assert second.getsockname()[1] != taken


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "slides.example.org", "127.0.0.1.evil.example", ""])
def test_a_project_cannot_open_this_computer_to_others(tmp_path: Path, host: str) -> None:
    (tmp_path / "gemslide.toml").write_text(f'[app]\nhost = "{host}"\n')

    result = run("app", "--project", str(tmp_path))

    assert result.exit_code == 1
    assert "gemslide app --host" in result.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_a_project_may_choose_among_this_computers_own_addresses(tmp_path: Path, host: str) -> None:
    (tmp_path / "gemslide.toml").write_text(f'[app]\nhost = "{host}"\n')
    assert load_settings(tmp_path / "gemslide.toml").app.host == host


def test_a_wrong_name_is_one_message(tmp_path: Path) -> None:
    result = run("app", "--project", str(tmp_path), "--name", "http://slides.example.org/")

    assert result.exit_code == 1
    assert "expected the part of the browser's address" in result.stderr


@pytest.mark.parametrize(
    ("address", "names", "link"),
    [
        ("127.0.0.1", (), "127.0.0.1:8501"),
        ("::1", (), "[::1]:8501"),
        ("10.1.2.3", (), "10.1.2.3:8501"),
        ("127.0.0.1", ("slides.example.org",), "slides.example.org:8501"),
        ("127.0.0.1", ("localhost:9000",), "127.0.0.1:8501"),
        ("0.0.0.0", ("localhost:9000",), "localhost:9000"),
        ("::", ("[2001:db8::1]",), "[2001:db8::1]:8501"),
    ],
)
def test_the_printed_link_is_one_that_the_app_answers_to(address: str, names: tuple[str, ...], link: str) -> None:
    assert shown_name(address, 8501, Names(names)) == link
    assert Names(names).include(link, (address, 8501))


def test_the_socket_names_its_protocol() -> None:
    """Without it asyncio leaves TCP_NODELAY off, and every tile on a keep-alive connection waits 40 ms."""
    with listen("127.0.0.1", [0]) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_the_app_knows_no_torch() -> None:
    """Importing every module of the web app must not load torch or napari: pages would start slowly."""
    program = (
        "import sys; import pathology_app.server, pathology_app.slides.presenters; "
        "import pathology_app.app_pages.slide.session; "
        "heavy = ('torch', 'napari', 'training.recipe.config', 'training.inference'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_an_address_that_others_reach_needs_people_who_sign_in_or_the_operators_word(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::"):
        result = run("app", "--project", str(tmp_path), "--host", host, "--port", "0")
        assert result.exit_code == 1
        assert "gemslide account add" in result.stderr
        assert "--login" in result.stderr
    assert list(tmp_path.iterdir()) == []
