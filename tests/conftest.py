"""Fixtures shared by all tests: the real slides, and a small project that went through the whole workflow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import settings
from typer.testing import CliRunner

from pipeline.cli import cli
from pipeline.settings.site import WITHIN_VARIABLE
from tests.small_trained_project import (
    SmallProject,
    changes_of_shared_project,
    copy_small_project,
    shared_small_project,
)

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

# A loaded machine is slow, not wrong: no time limit per generated example.
settings.register_profile("gemslide", deadline=None)
settings.load_profile("gemslide")

ROOT = Path(__file__).parent.parent

# Background jobs of a shell ignore Ctrl-C, and so would every process that the tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    data = os.environ.get("GEMSLIDE_TEST_DATA")
    return f"real slides: {data or 'GEMSLIDE_TEST_DATA is not set, tests on real slides skip'}"


@pytest.fixture(scope="session")
def real_slides() -> Path:
    """Folder of the real slides; tests that need it skip where it is absent."""
    folder = os.environ.get("GEMSLIDE_TEST_DATA")
    if not folder:
        pytest.skip("GEMSLIDE_TEST_DATA is not set: it names the folder of real slides")
    return Path(folder)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """Drives browsers. One for all tests of a process: a second one would not start in the first one's event loop."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(autouse=True)
def unconfined() -> Iterator[None]:
    """Disable confinement to a project's folders (`installation.confine`), because the tests share a process."""
    yield
    os.environ.pop(WITHIN_VARIABLE, None)


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def gemslide() -> Callable[..., Done]:
    """Run `gemslide` in this process. Signal handlers or a working folder that a verb leaves changed are errors."""

    def run(*arguments: object, cwd: Path | None = None) -> Done:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        here = Path.cwd()
        with mock.patch.dict(os.environ), chdir(cwd or here), stderr_of_others() as others:
            done = CliRunner().invoke(cli, [*map(str, arguments)], prog_name="gemslide")
            assert Path.cwd() == (cwd or here).resolve()
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception  # the user would see a traceback
        assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert "Traceback" not in others[0], others[0]
        return Done(done.exit_code, done.stdout, done.stderr + others[0])

    return run


@contextmanager
def stderr_of_others() -> Iterator[list[str]]:
    """Capture what worker processes and libraries write to standard error past Python's own `sys.stderr`.

    Yields:
        A list that holds the output, as one text, once the block has ended.
    """
    captured: list[str] = []
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield captured
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            log.seek(0)
            captured.append(log.read().decode(errors="replace"))


@pytest.fixture(scope="session")
def gemslide_process() -> Callable[..., Done]:
    """Run the installed `gemslide` in its own process, for tests of the process or of its child processes' output."""

    def run(*arguments: object, cwd: Path | None = None, timeout_s: float = 300) -> Done:
        command = [str(Path(sys.executable).parent / "gemslide"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout_s, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def small_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallProject]:
    """A small project: three slides ingested, tiled, and a model trained for a few steps.

    Made once for all workers. Read it, do not write: `small_project_copy` may be written.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared-small_project"
    yield shared_small_project(folder)
    assert not (changed := changes_of_shared_project(folder)), f"a test wrote into the project all share: {changed}"


@pytest.fixture(scope="module")
def small_project_copy(small_project: SmallProject, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    """Copy of the small project that the tests of one file may write to."""
    return copy_small_project(small_project, tmp_path_factory.mktemp("small_project-copy"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread, as the ranks do: with more, convolutions add in another order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
