from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ARTIFACTS = Path(__file__).parents[2] / "test-artifacts"


@pytest.fixture(scope="session")
def under_xvfb(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run a script of this folder in its own window with its own settings; return the last line it printed."""

    def run(script: str, *arguments: Path) -> str:
        if not shutil.which("xvfb-run"):
            pytest.skip("!! xvfb-run is missing: run .ci/system-packages")
        ARTIFACTS.mkdir(exist_ok=True)
        home = tmp_path_factory.mktemp("napari")
        python = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
        # napari keeps its settings in the home folder. The scripts import this project's tests.
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        environment |= {"XDG_CONFIG_HOME": str(home), "NAPARI_CONFIG": str(home / "napari.yaml")}
        command = ["xvfb-run", "-a", "-s", "-screen 0 1400x900x24", *python]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    return run
