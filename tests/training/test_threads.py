"""The same recipe gives the same bits however it is started: it, and not the machine, sets the number of threads."""

import json

import pytest

from pipeline.models.launch import train
from tests.model_packages import read_config
from tests.small_trained_project import Way, share_tiles
from training.foundation.errors import BadRecipeError
from training.recipe.config import load_recipe

STEPS = 3


def trained(small_project, folder, way, **options):
    """Train in a separate project; return the result, its last package and its run record."""
    share_tiles(small_project.project, folder)
    result = train(way.write(folder / "r.toml", steps=STEPS), folder, way.num_ranks, **options)
    (record,) = (folder / "runs").glob("*.json")
    return result, folder / "models" / result.last, json.loads(record.read_text())


def test_one_rank_and_two_give_the_same_bytes_whatever_the_environment_says(small_project, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    one, package_of_one, record_of_one = trained(small_project, tmp_path / "one", Way("single"))
    monkeypatch.delenv("OMP_NUM_THREADS")
    two, package_of_two, record_of_two = trained(small_project, tmp_path / "two", Way("master", num_stages=2))

    assert one == two
    weights = [(p / "model.safetensors").read_bytes() for p in (package_of_one, package_of_two)]
    assert weights[0] == weights[1]
    for record, package in ((record_of_one, package_of_one), (record_of_two, package_of_two)):
        ours = read_config(package)["gemslide"]
        assert record["threads"] == record["settings"]["train"]["threads"] == ours["threads"] == 1
        assert record["isa"] == ours["isa"] != ""


def test_the_option_wins_over_the_recipe_and_the_environment_and_is_recorded(small_project, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    _, package, record = trained(small_project, tmp_path / "p", Way("single"), threads=2)

    assert record["threads"] == record["settings"]["train"]["threads"] == 2
    assert read_config(package)["gemslide"]["threads"] == 2


def test_a_number_of_threads_that_cannot_be_is_refused(small_project, tmp_path):
    recipe = Way("single").write(tmp_path / "r.toml", steps=1)
    recipe.write_text(recipe.read_text().replace("steps = 1", "steps = 1\nthreads = 0"))

    with pytest.raises(BadRecipeError, match=r"\[train\] threads = 0: Input should be greater than or equal to 1"):
        load_recipe(recipe)
    with pytest.raises(BadRecipeError, match="threads = 100000: Input should be less than or equal to 1024"):
        train(Way("single").write(tmp_path / "r.toml", steps=1), small_project.project.root, 1, threads=100_000)
