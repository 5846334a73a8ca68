"""Every verb cleans the project that it opens, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.project import open_project


def leave(root: Path) -> list[Path]:
    """Create the leftovers of killed runs in every folder of a project."""
    token = "w0123abcd"
    places = ("slides", "slides/s.ome.zarr", "slides/s.ome.zarr/predictions", "tiles", "models", "runs", "results",
              "results/m-1", "results/m-1/s")  # fmt: skip
    left = []
    for place in places:
        (root / place).mkdir(parents=True, exist_ok=True)
        left += [root / place / f".a.{token}.partial", root / place / ".b.partial"]
        left[-2].write_text("half")
        left[-1].mkdir()
    left.append(root / f".cohort.csv.{token}.partial")
    left[-1].write_text("half")
    return left


def test_a_verb_removes_what_dead_runs_left_in_every_folder_of_a_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = leave(tmp_path)

    open_project(tmp_path)

    assert [path for path in left if os.path.lexists(path)] == []
    assert capsys.readouterr().err.count("recovered ") == len(left)


def test_a_folder_that_is_no_project_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/.b.partial").mkdir()
    (tmp_path / ".bashrc.old").write_text("theirs")

    open_project(tmp_path)

    assert (tmp_path / "models/.b.partial").exists()
    assert (tmp_path / ".bashrc.old").read_text() == "theirs"
