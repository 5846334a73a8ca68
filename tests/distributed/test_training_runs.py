"""Whole training runs through `gemslide train`: real tiles, real ranks."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from pipeline.launch import train
from tests.small_road import write_recipe

STEPS = 3


@pytest.fixture(scope="module")
def single(road, tmp_path_factory):
    return _train(road, tmp_path_factory.mktemp("single"), "single", 1)


def _train(road, folder, strategy, num_stages):
    """A project of its own that shares slides and tiles with the road."""
    for name in ("slides", "tiles"):
        (folder / name).symlink_to(road.project.root / name)
    recipe = write_recipe(folder / "r.toml", strategy=strategy, num_stages=num_stages, steps=STEPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # bit equality holds for the same number of threads
        return folder, train(recipe, folder, num_stages)


def _record(folder):
    (path,) = (folder / "runs").glob("*.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("strategy", ["mast", "master", "mp-basic"])
def test_a_run_on_two_ranks_ends_with_the_weights_of_one_process(road, single, tmp_path, strategy):
    folder, trained = _train(road, tmp_path, strategy, 2)

    assert trained == single[1]  # the model id holds the SHA-256 of the weights
    ours = load_file(folder / "models" / trained.last / "model.safetensors")
    theirs = load_file(single[0] / "models" / single[1].last / "model.safetensors")
    assert all(theirs[name].equal(value) for name, value in ours.items())


def test_the_run_record_says_what_was_done(single):
    folder, trained = single
    record = _record(folder)

    assert record["verb"] == "train"
    assert record["outcome"] == "done"
    assert record["outputs"] == sorted({trained.best, trained.last})
    assert record["plan"]["strategy"] == "single"
    assert {"train", "validate", "total"} <= record["seconds"].keys()
    assert record["inputs"][0]["id"] == "small"
    assert {"loss", "accuracy", "balanced_accuracy", "auc"} <= record["epochs"][0].keys()


def test_loss_metrics_and_pictures_are_in_the_tensorboard_file(single):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = (single[0] / "runs" / "tensorboard").glob("*/events*")
    log = EventAccumulator(str(events))
    log.Reload()

    assert {"train/loss", "train/lr", "val/loss", "val/accuracy", "val/auc"} <= set(log.Tags()["scalars"])
    assert {"val/confusion", "val/tiles"} <= set(log.Tags()["images"])
    assert len(log.Scalars("train/loss")) == STEPS


def test_mast_is_written_down_as_what_it_is(road, tmp_path):
    folder, _ = _train(road, tmp_path, "mast", 2)

    assert _record(folder)["plan"]["strategy"] == "master"
    assert _record(folder)["settings"]["parallel"]["strategy"] == "mast"


def test_a_world_size_that_does_not_fit_is_one_message(road, gemslide, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", strategy="master", num_stages=2)

    done = gemslide("train", recipe, "--project", road.project.root, "--nproc", 3)

    assert done.code == 1
    assert "error [wrong_world_size]" in done.err
    assert "needs 2 ranks, but 3 are started" in done.err


def test_a_tile_set_that_is_not_there_is_one_message(road, gemslide, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml")
    recipe.write_text(recipe.read_text().replace('"small"', '"smaal"'))

    done = gemslide("train", recipe, "--project", road.project.root, "--json")

    assert done.code == 1
    assert json.loads(done.out)["code"] == "empty_table"
    assert "there are: small" in done.err


def test_torchrun_with_a_misspelt_key_says_so_once(tmp_path):
    import subprocess
    import sys

    recipe = write_recipe(tmp_path / "r.toml")
    recipe.write_text(recipe.read_text().replace("tile_set", "tileset"))
    command = [sys.executable, "-m", "training.train", str(recipe), "--project", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("error [bad_recipe]")
    assert done.stderr.count("did you mean `tile_set`") == 1


def test_a_recipe_whose_name_cannot_name_a_model_is_refused(road, gemslide, tmp_path):
    recipe = write_recipe(tmp_path / "tiny (1).toml")

    done = gemslide("train", recipe, "--project", road.project.root)

    assert done.code == 1
    assert "error [bad_recipe]: tiny (1).toml" in done.err


def test_diverged_training_is_one_message_and_leaves_no_model(road, gemslide, tmp_path):
    for name in ("slides", "tiles"):
        (tmp_path / name).symlink_to(road.project.root / name)
    recipe = write_recipe(tmp_path / "r.toml", steps=6)
    recipe.write_text(recipe.read_text().replace("lr = 0.05", "lr = 1e30"))

    done = gemslide("train", recipe, "--project", tmp_path)

    assert done.code == 1
    assert "error [insane_output]: training diverged: the loss of step" in done.err
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_stopping_gemslide_stops_every_rank_and_publishes_nothing(road, tmp_path, stop):
    for name in ("slides", "tiles"):
        (tmp_path / name).symlink_to(road.project.root / name)
    recipe = write_recipe(tmp_path / "r.toml", strategy="master", num_stages=2, steps=100_000)
    command = [str(Path(sys.executable).parent / "gemslide"), "train", str(recipe), "--project", str(tmp_path)]
    process = subprocess.Popen([*command, "--nproc", "2"], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    gemslide_process = psutil.Process(process.pid)
    runs = tmp_path / "runs" / "tensorboard"
    wait_until(lambda: any(path.stat().st_size > 2000 for path in runs.glob("*/events*")))
    family = gemslide_process.children(recursive=True)
    assert len(family) >= 3  # torchrun and two ranks

    process.send_signal(stop)
    _, errors = process.communicate(timeout=100)

    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, (gone, alive)
    assert process.returncode != 0
    assert b"Traceback" not in errors
    assert not (tmp_path / "models").exists()
    assert _record(tmp_path)["outcome"] == "interrupted"


def wait_until(condition, timeout_s=90):
    """Poll a condition; gives up with an assertion."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited too long"
        threading.Event().wait(0.1)
