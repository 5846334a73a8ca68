"""Training loop beyond its steps: early stopping, skipped steps, averaging, validation on training ranks, messages."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.distributed.launch import run_ranks
from tests.distributed.starts import train_forked
from tests.small_trained_project import Way, share_tiles, write_recipe
from training.engine.ranks import alone
from training.foundation.errors import ImplausibleOutputError, OutOfMemoryError
from training.foundation.recipe_file import find_recipe
from training.inference import Classifier
from training.machine.devices import limit_bytes
from training.recipe.config import load_recipe
from training.run.loop import MOST_SKIPPED
from training.run.metrics import classification_metrics, slide_metrics
from training.run.out_of_memory import ranks_sharing
from training.run.preflight import check_run
from training.run.trainer import Trainer

STEPS_PER_EPOCH = 19


def recipe_in(small_project, folder, *, steps=4, way=None, **changes):
    """Write a recipe in a separate project; `changes` are lines by the table they belong to."""
    share_tiles(small_project.project, folder)
    recipe = (way or Way()).write(folder / "r.toml", steps=steps)
    text = recipe.read_text()
    for table, lines in changes.items():
        text = text.replace(f"[{table}]", f"[{table}]\n{lines}")
    recipe.write_text(text)
    return recipe


def epochs_of(recipe, count):
    recipe.write_text(recipe.read_text().replace("steps = 4", f"epochs = {count}"))
    return recipe


def record(folder):
    (path,) = (folder / "runs").glob("*.json")
    return json.loads(path.read_text())


def trainer(recipe, folder):
    return Trainer(check_run(recipe, folder, 1), folder, alone(), torch.device("cpu"))


def test_a_run_ends_when_the_validation_loss_stops_falling(small_project, tmp_path):
    recipe = epochs_of(recipe_in(small_project, tmp_path, train="patience = 1"), 50)
    recipe.write_text(recipe.read_text().replace("lr = 0.05", "lr = 1e-30"))

    trained = train_forked(recipe, tmp_path, 1)

    epochs = record(tmp_path)["epochs"]
    best = min(range(len(epochs)), key=lambda i: epochs[i]["loss"])
    assert len(epochs) < 50
    assert len(epochs) == best + 1 + 1
    assert load_file(tmp_path / "models" / trained.best / "model.safetensors")


def test_a_step_that_is_not_finite_ends_the_run_naming_step_rank_and_tiles(small_project, tmp_path):
    recipe = recipe_in(small_project, tmp_path, steps=30, optim="warmup_steps = 0")
    recipe.write_text(recipe.read_text().replace("lr = 0.05", "lr = 1e30") + "[checkpoint]\nevery_steps = 1\n")

    message = (
        r"training diverged: step \d+: .* of micro-batch \d in stage 0 on rank 0 .* Its tiles are rows [\d, ]+ of "
        r"the tile table, of small-train\. .*The last checkpoint is .*step-0000000\d"
    )
    with pytest.raises(ImplausibleOutputError, match=message):
        trainer(recipe, tmp_path).run()

    assert record(tmp_path)["outcome"] == "insane_output"
    assert len(list(tmp_path.glob("checkpoints/*/step-*"))) in (1, 2)


def test_where_the_recipe_says_so_such_steps_are_skipped_and_counted_and_not_for_ever(
    small_project, tmp_path, monkeypatch
):
    recipe = recipe_in(small_project, tmp_path, train='non_finite = "skip"')
    one = trainer(recipe, tmp_path)
    calls = []

    def sometimes_infinite(outputs_nk, labels_n):
        calls.append(1)
        loss = torch.nn.functional.cross_entropy(outputs_nk, labels_n, reduction="sum")
        return loss * float("inf") if 3 <= len(calls) <= 4 else loss  # both micro-batches of the second step

    one._loss = sometimes_infinite
    one.run()

    assert record(tmp_path)["skipped_steps"] == [1]
    assert record(tmp_path)["outcome"] == "done"

    folder = tmp_path / "always"
    folder.mkdir()
    always = trainer(recipe_in(small_project, folder, steps=40, train='non_finite = "skip"'), folder)
    always._loss = lambda outputs_nk, labels_n: outputs_nk.sum() * float("nan")
    with pytest.raises(ImplausibleOutputError, match=f"{MOST_SKIPPED} steps before it were skipped"):
        always.run()


def test_a_step_lost_to_sixteen_bits_counts_as_skipped_and_its_loss_in_no_mean(small_project, tmp_path):
    one = trainer(recipe_in(small_project, tmp_path, train='precision = "fp16"'), tmp_path)
    one._engine.loss_scale.value = 2.0**120

    assert one.step(one.batch(0), None) is None
    assert (one._state.steps_done, one._state.skipped, one._state.num_losses, one._state.loss_sum) == (1, 1, 0, 0.0)

    one._engine.loss_scale.value = 1.0
    assert one.step(one.batch(1), None) is not None
    assert (one._state.steps_done, one._state.skipped, one._state.num_losses) == (2, 0, 1)


def test_the_averaged_weights_are_what_is_validated_and_packaged(small_project, tmp_path):
    plain, averaged = tmp_path / "plain", tmp_path / "averaged"
    results = [
        train_forked(recipe_in(small_project, plain), plain, 1),
        train_forked(recipe_in(small_project, averaged, optim="ema_decay = 0.5"), averaged, 1),
    ]

    packages = [folder / "models" / one.last for folder, one in zip((plain, averaged), results, strict=True)]
    ours, theirs = (load_file(package / "model.safetensors") for package in packages)
    assert all(not torch.equal(ours[name], theirs[name]) for name in ours if name.endswith("weight"))
    assert record(plain)["epochs"][0]["train_loss"] == record(averaged)["epochs"][0]["train_loss"]
    assert record(plain)["epochs"][0]["loss"] != record(averaged)["epochs"][0]["loss"]


@pytest.mark.parametrize("way", [Way("master", num_stages=2), Way("ddp", num_microbatches=1, data_parallel=2)])
def test_ranks_that_validate_together_say_what_the_packaged_network_says(small_project, tmp_path, way):
    recipe = recipe_in(small_project, tmp_path, way=way)

    trained = train_forked(recipe, tmp_path, way.num_ranks)

    checked = check_run(recipe, tmp_path, way.num_ranks)
    tiles = np.flatnonzero(checked.source.splits == "val")
    tiles = tiles[checked.source.labels[tiles] >= 0]
    classifier = Classifier.load(tmp_path / "models" / trained.last)
    probabilities_nk = classifier.predict(np.stack([checked.source.read(int(tile)) for tile in tiles]))
    expected = classification_metrics(checked.source.labels[tiles], probabilities_nk)
    epoch = record(tmp_path)["epochs"][-1]
    assert {name: epoch[name] for name in expected} == pytest.approx(expected, abs=1e-4)


class NotedSource:
    """Dataset that records the ranks on which pixels and labels are requested."""

    def __init__(self, source):
        self._source, self.pixels = source, []

    def __getattr__(self, name):
        return getattr(self._source, name)

    def __len__(self):
        return len(self._source)

    def read(self, index):
        self.pixels.append(index)
        return self._source.read(index)


def pixels_read(ranks, recipe, folder):
    """Number of tiles that the rank reads before its first step, and the tiles that it reads in it."""
    checked = check_run(recipe, folder, ranks.num_ranks)
    source = NotedSource(checked.source)
    one = Trainer(replace(checked, source=source), folder, ranks, torch.device("cpu"))
    before = len(source.pixels)
    one.step(one.batch(0), None)
    return before, sorted(source.pixels[before:])


def test_only_ranks_with_a_first_stage_read_pixels_and_each_tile_is_read_once(small_project, tmp_path):
    recipe = recipe_in(small_project, tmp_path, way=Way("1f1b", num_stages=2))

    first, last = run_ranks(2, pixels_read, recipe, tmp_path)

    assert len(first[1]) == len(set(first[1])) == 8
    assert first[0] > 0  # the mean of the channels
    assert last == (0, [])


def too_little_memory(ranks, recipe, folder):
    checked = check_run(recipe, folder, 1)
    one = Trainer(checked, folder, alone(), torch.device("cpu"))
    one.step(one.batch(0), None)  # libraries need some memory
    status = Path("/proc/self/status").read_text().splitlines()
    used = int(next(line.split()[1] for line in status if line.startswith("VmData"))) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + 40_000_000, resource.RLIM_INFINITY))
    big = checked.recipe.model_copy(
        update={"parallel": checked.recipe.parallel.model_copy(update={"microbatch_size": 64, "num_microbatches": 1})}
    )
    other = Trainer(replace(checked, recipe=big), folder, alone(), torch.device("cpu"))
    try:
        other.step(other.batch(0), None)
    except OutOfMemoryError as error:
        return str(error)
    return None


def test_memory_that_runs_out_is_explained_with_block_bytes_and_what_would_fit(small_project, tmp_path):
    message = run_ranks(1, too_little_memory, recipe_in(small_project, tmp_path), tmp_path)[0]

    assert message is not None
    assert "memory ran out in block " in message
    assert "allocate" in message
    assert 'recompute = "norm" (0.' in message
    assert "microbatch_size = 32, which changes the result" in message


def test_ranks_of_one_machine_share_its_memory(monkeypatch):
    here = torch.device("cpu")
    machine = limit_bytes(here)
    two = load_recipe(find_recipe(Path("demo.toml")))
    four = two.model_copy(update={"parallel": two.parallel.model_copy(update={"num_stages": 4})})

    assert ranks_sharing(two, two, here) == 1  # each on its own machine
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert ranks_sharing(two, two, here) == 2
    assert ranks_sharing(four, two, here) == 4
    assert limit_bytes(here, 4) <= machine / 4 + 1


def test_validation_that_is_not_finite_names_its_tiles_and_the_last_checkpoint(small_project, tmp_path):
    recipe = recipe_in(small_project, tmp_path)
    one = trainer(recipe, tmp_path)
    weights = one._engine.full_state_dict()
    head = next(name for name in reversed(weights) if name.endswith(".bias"))
    one._engine.load_full_state_dict({**weights, head: weights[head] * torch.nan})

    with pytest.raises(ImplausibleOutputError) as raised:
        one._validated()

    rows = np.flatnonzero(np.asarray(one.source.splits) == "val")
    assert f"{len(rows)} of {len(rows)} validation tiles (rows {rows[0]}, {rows[1]}, " in str(raised.value)
    assert "There was no checkpoint yet." in str(raised.value)


def test_slides_count_by_the_mean_of_their_tiles_where_all_have_one_label():
    slides = np.array(["a", "a", "b", "b", "b", "c", "c"])
    labels = np.array([0, 0, 1, 1, 1, 0, 1])  # slide c has no label
    probabilities_nk = np.array(
        [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.5, 0.5], [0.5, 0.5]], np.float32
    )

    metrics = slide_metrics(labels, probabilities_nk, slides)

    calibration_error = metrics.pop("slide_calibration_error")
    assert metrics == dict.fromkeys(("slide_accuracy", "slide_balanced_accuracy", "slide_f1", "slide_auc"), 1.0)
    # a is predicted with 0.65 and b with 1.9 / 3, both correctly
    assert calibration_error == pytest.approx((0.35 + 1.1 / 3) / 2, abs=1e-4)
    assert slide_metrics(labels[:2], probabilities_nk[:2], slides[:2]) == {}


def test_calibration_and_f1_are_those_of_their_definitions():
    labels = np.array([0, 0, 1, 1])
    probabilities_nk = np.array([[0.9, 0.1], [0.3, 0.7], [0.3, 0.7], [0.3, 0.7]], np.float32)

    metrics = classification_metrics(labels, probabilities_nk)

    # One bin of three tiles predicted with 0.7, two of them correctly, and one of a correct tile with 0.9.
    assert metrics["calibration_error"] == pytest.approx(3 / 4 * abs(2 / 3 - 0.7) + 1 / 4 * 0.1, abs=1e-6)
    assert metrics["f1"] == pytest.approx((2 / 3 + 4 / 5) / 2, abs=1e-6)
    assert metrics["auc"] == pytest.approx(0.75)


def test_a_recipe_with_patience_but_without_epochs_is_refused(tmp_path):
    recipe = write_recipe(tmp_path / "r.toml")
    recipe.write_text(recipe.read_text() + "patience = 3\n")

    from training.foundation.errors import BadRecipeError
    from training.recipe.config import load_recipe

    with pytest.raises(BadRecipeError, match="`patience` counts epochs"):
        load_recipe(recipe)
