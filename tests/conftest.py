"""What all tests share: the real slides, and a small project that went down the whole workflow."""

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
from unittest import mock

import pytest
from hypothesis import settings
from typer.testing import CliRunner

from pipeline.cli import cli
from tests.small_road import SmallRoad, changes_of_shared_road, copy_road, shared_road

# A loaded machine is slow, not wrong: no time limit for each generated example.
settings.register_profile("gemslide", deadline=None)
settings.load_profile("gemslide")

ROOT = Path(__file__).parent.parent

# A shell has its background jobs ignore Ctrl-C, and so would every process the tests start and then interrupt.
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


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def gemslide() -> Callable[..., Done]:
    """Runs `gemslide` in this process. What verbs leave behind there (signal handlers, the folder) is an error."""

    def run(*arguments: object, cwd: Path | None = None) -> Done:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        here = Path.cwd()
        with mock.patch.dict(os.environ), chdir(cwd or here), stderr_of_others() as others:
            done = CliRunner().invoke(cli, [*map(str, arguments)], prog_name="gemslide")
            assert Path.cwd() == (cwd or here).resolve()
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception  # a person would see a traceback
        assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert "Traceback" not in others[0], others[0]
        return Done(done.exit_code, done.stdout, done.stderr + others[0])

    return run


@contextmanager
def stderr_of_others() -> Iterator[list[str]]:
    """What worker processes and libraries write to standard error, which Python's own `sys.stderr` does not see.

    Yields:
        A list that has it, as one text, when the block has ended.
    """
    said: list[str] = []
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            log.seek(0)
            said.append(log.read().decode(errors="replace"))


@pytest.fixture(scope="session")
def gemslide_process() -> Callable[..., Done]:
    """Runs the installed `gemslide` in a process of its own: where that, or what its own processes say, is tested."""

    def run(*arguments: object, cwd: Path | None = None, timeout_s: float = 300) -> Done:
        command = [str(Path(sys.executable).parent / "gemslide"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout_s, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallRoad]:
    """A small project: three slides ingested, tiled, and a model trained for a few steps.

    Made once for all workers. Read it, do not write: `road_copy` may be written.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared-road"
    yield shared_road(folder)
    assert not (changed := changes_of_shared_road(folder)), f"a test wrote into the project all share: {changed}"


@pytest.fixture(scope="module")
def road_copy(road: SmallRoad, tmp_path_factory: pytest.TempPathFactory) -> SmallRoad:
    """The small project once more, for the tests of one file, who may write into it."""
    return copy_road(road, tmp_path_factory.mktemp("road-copy"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """As in the ranks: with more threads, convolutions add in another order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
