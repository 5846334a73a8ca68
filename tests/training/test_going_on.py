"""A run that died resumes bit for bit as if uninterrupted, wherever it died and on any number of ranks."""

from __future__ import annotations

import json
import random
import shutil

import pytest
from safetensors.torch import load_file
from torch.multiprocessing import ProcessRaisedException

from pipeline.models.launch import TrainingResult
from tests.distributed.starts import Death, train_forked, train_until_death
from tests.small_disk import small_disk
from tests.small_trained_project import Way, share_tiles
from training.recipe.config import load_recipe
from training.run.checkpoint import MANIFEST

STEPS_PER_EPOCH = 19
WAYS = {
    "single": Way("single"),
    "master": Way("master", num_stages=2),
    "ddp": Way("ddp", num_microbatches=1, data_parallel=2),
    "1f1b": Way("1f1b", num_stages=2, more="recompute = {every = 2}"),
}
"""All use 8 tiles per step, 4 per micro-batch."""
ALL_OF_IT = """clip_norm = 1.0
ema_decay = 0.9
label_smoothing = 0.1
name = "adamw"
"""
"""Settings for every part that has or could have its own state."""
AUGMENT = """[augment]
brightness = 0.1
hue = 0.05
[checkpoint]
every_steps = 5
"""

pytestmark = pytest.mark.xdist_group("resume")


def write(way, path, *, every=5):
    way.write(path, steps=1)
    text = path.read_text().replace("lr = 0.05", f"lr = 0.005\n{ALL_OF_IT}").replace("steps = 1", "epochs = 2")
    path.write_text(text + AUGMENT.replace("every_steps = 5", f"every_steps = {every}"))
    return path


@pytest.fixture(scope="module")
def unbroken(small_project, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    share_tiles(small_project.project, folder)
    return folder, train_forked(write(WAYS["single"], folder / "r.toml"), folder, 1)


def record(folder):
    (path,) = (folder / "runs").glob("*.json")
    return json.loads(path.read_text())


def check_equal(unbroken, folder, result):
    before, expected = unbroken
    assert result == expected  # model ids contain the SHA-256 of the weights
    ours, theirs = (load_file(f / "models" / result.last / "model.safetensors") for f in (folder, before))
    assert all(theirs[name].equal(value) for name, value in ours.items())
    assert record(folder)["epochs"] == record(before)["epochs"]
    assert not list((folder / "checkpoints").glob("*"))


@pytest.mark.parametrize(
    ("death", "last"),
    [
        pytest.param(Death(3), 0, id="before the first checkpoint"),
        pytest.param(Death(7, 3), 5, id="in a backward"),
        pytest.param(Death(19), 15, id="in the first validation"),
        pytest.param(Death(21, 1), 20, id="in the second epoch"),
        pytest.param(Death(8, in_checkpoint=True), 5, id="in a checkpoint"),
    ],
)
def test_a_run_of_one_process_goes_on_wherever_it_died(unbroken, small_project, tmp_path, death, last):
    share_tiles(small_project.project, tmp_path)
    recipe = write(WAYS["single"], tmp_path / "r.toml")

    train_until_death(recipe, tmp_path, 1, death)
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("*/step-*"))
    result = train_forked(recipe, tmp_path, 1)

    check_equal(unbroken, tmp_path, result)
    assert names[-1:] == ([f"step-{last:08}"] if last else [])
    resumed = record(tmp_path).get("resumed")
    assert (resumed or {"step": 0})["step"] == last
    assert resumed is None or resumed["differs"] == {}


def test_fresh_begins_anew_whatever_there_is(unbroken, small_project, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = write(WAYS["single"], tmp_path / "r.toml")
    train_until_death(recipe, tmp_path, 1, Death(7))
    assert list((tmp_path / "checkpoints").glob("*/step-*"))

    check_equal(unbroken, tmp_path, train_forked(recipe, tmp_path, 1, fresh=True))
    assert "resumed" not in record(tmp_path)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("single", "master"),
        ("master", "ddp"),
        pytest.param("ddp", "1f1b", marks=pytest.mark.prove),
        pytest.param("1f1b", "single", marks=pytest.mark.prove),
    ],
)
def test_a_run_goes_on_under_another_strategy(unbroken, small_project, tmp_path, first, then):
    share_tiles(small_project.project, tmp_path)
    recipe = tmp_path / "r.toml"

    train_until_death(write(WAYS[first], recipe), tmp_path, WAYS[first].num_ranks, Death(12, 1))
    result = train_forked(write(WAYS[then], recipe), tmp_path, WAYS[then].num_ranks)

    check_equal(unbroken, tmp_path, result)


def test_a_damaged_checkpoint_costs_steps_and_not_the_result(unbroken, small_project, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = write(WAYS["single"], tmp_path / "r.toml")
    train_until_death(recipe, tmp_path, 1, Death(12))
    (newest,) = (tmp_path / "checkpoints").glob("*/step-00000010")
    (newest / MANIFEST).write_text("{}")

    result = train_forked(recipe, tmp_path, 1)

    check_equal(unbroken, tmp_path, result)
    resumed = record(tmp_path)["resumed"]
    assert resumed["step"] == 5
    assert "step-00000010" in resumed["complaints"][0]


def test_another_learning_rate_is_another_run_and_begins_anew(small_project, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = write(WAYS["single"], tmp_path / "r.toml")
    train_until_death(recipe, tmp_path, 1, Death(7))

    recipe.write_text(recipe.read_text().replace("lr = 0.005", "lr = 0.006"))
    train_until_death(recipe, tmp_path, 1, Death(2))

    (left,) = (tmp_path / "checkpoints").iterdir()  # of the first run: the second died before its first checkpoint
    assert [path.name for path in left.iterdir()] == ["step-00000005"]


def test_a_run_that_goes_on_with_other_threads_says_that_bits_will_differ(small_project, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = write(WAYS["single"], tmp_path / "r.toml")
    train_until_death(recipe, tmp_path, 1, Death(7))
    recipe.write_text(recipe.read_text().replace("[train]", "[train]\nthreads = 2"))

    result = train_forked(recipe, tmp_path, 1)

    assert isinstance(result, TrainingResult)
    assert record(tmp_path)["resumed"]["differs"] == {"threads": [1, 2]}


def test_moments_of_death_drawn_at_random_are_no_others(unbroken, small_project, tmp_path):
    """Five in one run; `make chaos` kills real processes fifty times."""
    share_tiles(small_project.project, tmp_path)
    recipe, draw = write(WAYS["single"], tmp_path / "r.toml", every=3), random.Random(15)

    for until in (10, 16, 23, 30, 38):
        train_until_death(recipe, tmp_path, 1, Death(draw.randrange(until - 6, until), draw.randrange(4)))

    assert load_recipe(recipe).checkpoint.every_steps == 3
    check_equal(unbroken, tmp_path, train_forked(recipe, tmp_path, 1))


def test_a_run_whose_disk_was_full_goes_on_when_there_is_room_again(unbroken, small_project, tmp_path):
    with small_disk(tmp_path / "disk", "size=20m") as project:
        share_tiles(small_project.project, project)
        recipe = write(WAYS["single"], project / "r.toml")
        train_until_death(recipe, project, 1, Death(7))
        filler = project / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(project).free - 200_000))
        with pytest.raises(ProcessRaisedException, match="DiskFullError"):
            train_forked(recipe, project, 1)
        assert [path.name for path in project.glob("checkpoints/*/*")] == ["step-00000005"]
        filler.unlink()

        assert train_forked(recipe, project, 1) == unbroken[1]


def test_a_loss_scale_is_taken_up_only_where_the_precision_is_the_same(small_project, tmp_path):
    """The scale of fp16 would make an fp32 run lose steps silently; that of fp32 is none for fp16."""
    share_tiles(small_project.project, tmp_path)
    recipe = write(WAYS["single"], tmp_path / "r.toml")
    train_until_death(recipe, tmp_path, 1, Death(6))
    (path,) = tmp_path.glob(f"checkpoints/*/step-00000005/{MANIFEST}")
    manifest = json.loads(path.read_text())
    manifest["arithmetic"]["precision"], manifest["state"]["loss_scale"] = "fp16", 4096.0
    path.write_text(json.dumps(manifest))

    train_until_death(recipe, tmp_path, 1, Death(11))

    (path,) = tmp_path.glob(f"checkpoints/*/step-00000010/{MANIFEST}")
    assert json.loads(path.read_text())["state"]["loss_scale"] == 1.0
