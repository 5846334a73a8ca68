"""`gemslide app` and `gemslide view` where they cannot start."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pathology_app import commands
from pathology_app.server import CannotListenError, listen, server_name


def run(*arguments: str) -> Result:
    verbs = typer.Typer()
    verbs.command()(commands.app)
    verbs.command()(commands.view)
    return CliRunner().invoke(verbs, list(arguments))


@pytest.mark.parametrize(
    ("verb", "library", "extra"), [("app", "streamlit", "gemslide[app]"), ("view", "napari", "gemslide[desktop]")]
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str, library: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("pathology_app.")]:
        if name != commands.__name__:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setenv("DISPLAY", ":99")

    result = run(verb, *(["--project", str(tmp_path)] if verb == "app" else [str(tmp_path)]))

    assert result.exit_code == 1
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


@pytest.mark.parametrize(
    ("listening_on", "name"),
    [("127.0.0.1", None), ("::1", None), ("10.1.2.3", "10.1.2.3"), ("0.0.0.0", socket.gethostname())],
)
def test_others_may_call_the_app_by_the_computers_name(listening_on: str, name: str | None) -> None:
    assert server_name(listening_on) == name


def test_the_socket_names_its_protocol() -> None:
    """Without it asyncio leaves TCP_NODELAY off, and every tile on a kept connection waits 40 ms."""
    with listen("127.0.0.1", [0]) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_the_app_knows_no_torch() -> None:
    """Importing every module of the web app must not load torch or napari: pages would start slowly."""
    program = (
        "import sys; import pathology_app.server, pathology_app.presenters, pathology_app.session; "
        "print([name for name in ('torch', 'napari', 'training.config', 'training.inference') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
