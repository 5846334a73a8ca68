"""A training run on a full or read-only disk ends with one message and leaves nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.small_disk import small_disk
from tests.small_trained_project import SmallProject, share_tiles, write_recipe


def test_a_full_disk_ends_a_training_run_with_an_explanation_with_its_record_and_without_leftovers(
    small_project: SmallProject, tmp_path: Path, gemslide_process: Callable[..., Done]
) -> None:
    """The disk has room for the record, but not for a checkpoint or a model package of about 0.7 MB."""
    recipe = write_recipe(tmp_path / "small.toml", steps=1)
    with small_disk(tmp_path / "disk", "size=400k") as project:
        share_tiles(small_project.project, project)
        done = gemslide_process("train", recipe, "--project", project)

        assert done.code == 1
        assert "error [disk_full]" in done.err
        assert "no space left while writing" in done.err
        (record,) = (project / "runs").glob("*.json")
        assert str(record) in done.err
        assert json.loads(record.read_text())["outcome"] == "disk_full"
        assert list(project.glob("models/*")) == []
        assert list(project.glob("checkpoints/*/*")) == []
        assert list(project.rglob(".*")) == []


def test_a_read_only_project_ends_a_training_run_with_an_explanation(
    small_project: SmallProject, tmp_path: Path, gemslide_process: Callable[..., Done]
) -> None:
    recipe = write_recipe(tmp_path / "small.toml", steps=1)
    with small_disk(tmp_path / "disk", "size=400k") as project:
        share_tiles(small_project.project, project)
        subprocess.run(["mount", "-o", "remount,ro", str(project)], check=True)
        done = gemslide_process("train", recipe, "--project", project)

        assert done.code == 1
        assert "error [disk_full]" in done.err
        assert "Make the project folder writable" in done.err
        assert "ended before it could write one" in done.err


def test_the_computer_s_name_is_nowhere_in_what_training_leaves(small_project: SmallProject, tmp_path: Path) -> None:
    """torch's own writer puts it into the file's name. Run under a name long enough to search for."""
    name = b"erika-mustermanns-pc"
    recipe = write_recipe(tmp_path / "small.toml", steps=1)
    project = tmp_path / "project"
    share_tiles(small_project.project, project)
    train = [sys.executable, "-m", "training.train", str(recipe), "--project", str(project)]
    script = f'hostname {name.decode()} && hostname && exec "$@"'
    command = ["unshare", "--uts", "sh", "-c", script, "sh", *train]
    done = subprocess.run(command, capture_output=True, check=False)
    if name not in done.stdout:
        pytest.skip(f"this machine lets nobody rename itself: {done.stderr.decode()}")
    assert done.returncode == 0, done.stderr.decode()

    left = [path for folder in ("runs", "models") for path in (project / folder).rglob("*") if path.is_file()]
    assert any("tfevents" in path.name for path in left)
    assert [path for path in left if name in bytes(path) or name in path.read_bytes()] == []
