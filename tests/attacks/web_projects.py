"""The web app over damaged projects: each row, page and tile fails alone, with a message.

    python -m tests.attacks.web_projects --times 300 --seed 1

Promised: whatever the files of one slide hold, the others are shown; the damaged one is marked; no page ends in a
program error, none takes long, and unreadable hotspots are never shown as "none".
"""

from __future__ import annotations

import random
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from pipeline.project import Project
from tests.attacks.attack import Result, main
from tests.attacks.hostile_projects import variants
from tests.attacks.web_project_looks import HEALTHY, LONGEST_S, look
from tests.pathology_app.small_project import SLIDE_ID, make_project


def attack(times: int, seed: int) -> Result:
    """Open `times` damaged projects, in a process that is killed when it hangs."""
    result = Result("hostile projects before the web app")
    chosen = list(variants())
    random.Random(seed).shuffle(chosen)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        _make_whole(whole)
        looker = _Looker(whole)
        for number, name in enumerate(chosen[:times]):
            root = Path(folder) / str(number)
            shutil.copytree(whole, root)
            variants()[name](Project(root))
            result.attempts += 1
            result.findings += [f"{name}: {finding}" for finding in looker.look(root, name)]
            shutil.rmtree(root)
        looker.close()
    return result


def _make_whole(root: Path) -> None:
    """Make a copy of the small project with a second slide beside the one to be damaged."""
    root.mkdir()
    project = make_project(root)
    healthy = project.store_path(HEALTHY)
    shutil.copytree(project.store_path(SLIDE_ID), healthy, ignore=shutil.ignore_patterns("predictions"))
    text = (healthy / "zarr.json").read_text()
    (healthy / "zarr.json").write_text(text.replace(f'"{SLIDE_ID}"', f'"{HEALTHY}"'))


class _Looker:
    """A process that opens projects; it is replaced when it hangs."""

    def __init__(self, whole: Path) -> None:
        """Args: whole: an undamaged project, opened first so that start-up is not counted."""
        self._whole = whole
        self._start()

    def look(self, root: Path, name: str) -> list[str]:
        """Broken promises for one project."""
        findings = self._pool.submit(look, root, name)
        try:
            return findings.result(timeout=LONGEST_S)
        except TimeoutError:
            self.close()
            self._start()
            return [f"not done after {LONGEST_S:.0f} s"]

    def close(self) -> None:
        """Kill the process, whatever it is doing."""
        for process in list(self._pool._processes.values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        assert not self._pool.submit(look, self._whole, "").result()


if __name__ == "__main__":
    main(attack, times=1000)
