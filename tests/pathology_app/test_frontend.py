"""The viewer's TypeScript: its own tests, and that the committed bundle is built from it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pathology_app.viewer.bundle import DIST, bundle_path

NPM = shutil.which("npm")
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH")


def npm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert NPM
    return subprocess.run([NPM, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def frontend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The front end's folder with what its lock names, away from the checkout."""
    if NPM is None:
        pytest.skip("npm is not installed: it tests and builds the viewer's TypeScript")
    folder = tmp_path_factory.mktemp("frontend") / "viewer"
    shutil.copytree(DIST.parent, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    installed = npm(folder, "ci")
    if any(word in installed.stderr for word in UNREACHABLE):
        pytest.skip("npm's registry cannot be reached: the viewer's TypeScript was not tested")
    assert installed.returncode == 0, installed.stderr
    return folder


def test_the_typescript_is_sound_and_its_own_tests_pass(frontend: Path) -> None:
    checked, tested = npm(frontend, "run", "check"), npm(frontend, "test")
    assert checked.returncode == 0, checked.stdout
    assert tested.returncode == 0, tested.stdout
    assert "# fail 0" in tested.stdout


def test_the_committed_bundle_is_built_from_this_source(frontend: Path) -> None:
    built = npm(frontend, "run", "build")
    assert built.returncode == 0, built.stderr
    assert [path.name for path in (frontend / "dist").iterdir()] == [bundle_path().name]
