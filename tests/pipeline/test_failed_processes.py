"""Messages to the user when a process started by gemslide fails."""

import os
import subprocess
import sys

import pytest

from pipeline.errors import ProcessFailedError
from pipeline.models.launch import PlanRequest, show_plan, train
from tests.small_trained_project import share_tiles, write_recipe
from training.foundation.errors import BadRecipeError


@pytest.fixture
def broken_torch(tmp_path, monkeypatch):
    """Make importing torch fail in processes started from here."""
    (tmp_path / "torch.py").write_text('raise ImportError("libtorch.so: cannot open shared object file")\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


def test_a_process_that_crashes_is_one_sentence_with_its_last_line(small_project, tmp_path, broken_torch, capfd):
    recipe = write_recipe(tmp_path / "r.toml")

    with pytest.raises(ProcessFailedError) as failed:
        show_plan(recipe, small_project.project.root, PlanRequest())

    message = str(failed.value)
    assert failed.value.code == "failed_process"
    assert message.startswith("planning failed: `python -m training.tools.show_plan` ended with exit code 1;")
    assert "its last line: ImportError: libtorch.so: cannot open shared object file." in message
    assert "Traceback" not in message
    assert "\n" not in message
    assert "Traceback" in capfd.readouterr().err  # complete, above the message


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_run_that_cannot_begin_names_its_exit_code(small_project, tmp_path, broken_torch, capfd, num_ranks):
    recipe = write_recipe(tmp_path / "r.toml")

    message = r"training r\.toml on . ranks? ended with exit code 1\. Its output is above"
    with pytest.raises(ProcessFailedError, match=message):
        train(recipe, small_project.project.root, num_ranks)

    assert "libtorch.so: cannot open shared object file" in capfd.readouterr().err


def test_a_run_that_fails_names_its_exit_code_and_its_record(small_project, tmp_path, capfd):
    share_tiles(small_project.project, tmp_path)
    recipe = write_recipe(tmp_path / "r.toml", steps=6)
    recipe.write_text(recipe.read_text().replace("lr = 0.05", "lr = 1e30"))

    with pytest.raises(ProcessFailedError) as failed:
        train(recipe, tmp_path, 1)

    (record,) = (tmp_path / "runs").glob("*.json")
    assert str(failed.value) == (
        f"training r.toml on 1 rank ended with exit code 1. Its output is above; run record: {record}. "
        "No model package was written."
    )
    assert "error [insane_output]: training diverged" in capfd.readouterr().err


@pytest.mark.parametrize(("rank", "local_rank", "speaks"), [(0, 0, True), (1, 1, False), (2, 0, True)])
def test_the_first_rank_of_each_machine_says_what_it_refuses(small_project, tmp_path, rank, local_rank, speaks):
    """A machine that lacks the recipe must not be silent while the others wait for it."""
    command = [sys.executable, "-m", "training.train", "nowhere.toml", "--project", str(tmp_path)]
    place = {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": "4"}

    done = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("error [bad_recipe]: nowhere.toml: no such recipe") == speaks
    assert bool(done.stderr) == speaks


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_what_ranks_refuse_is_raised_as_its_code_says_and_not_said_besides(small_project, tmp_path, capfd, num_ranks):
    recipe = write_recipe(tmp_path / "r.toml")
    recipe.write_text(recipe.read_text().replace("depth = 11", "depth = 12"))

    with pytest.raises(BadRecipeError, match="nearest are 11 and 20"):
        train(recipe, small_project.project.root, num_ranks)

    assert capfd.readouterr().err == ""
