"""Whole training runs on real tiles and real ranks.

`gemslide train` starts some of them in `make test`, and all of them in `make prove`; the others use forked ranks.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file

from pipeline.cohort.manifest import load_cohort
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.tiles.tile import make_tile_table
from tests.distributed.starts import train, train_forked
from tests.small_trained_project import TILES, Way, share_tiles, write_recipe
from tests.waiting import wait_until
from training.engine import TensorBatch
from training.engine.predict import predict_memory
from training.foundation.errors import BadRecipeError, GemslideError
from training.inference import Classifier
from training.recipe.config import Recipe
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import blocks_of, plan_of
from training.run.preflight import check_run

STEPS = 19
"""Steps in an epoch of 150 tiles, 8 per batch: the last batch has 6, so its last micro-batch has 2, not 4."""
SHORT = 2
WAYS = {
    "single": Way("single"),
    "master": Way("master", num_stages=2),
    "mast": Way("mast", num_stages=2),
    "mp-basic": Way("mp-basic", num_stages=2, more="recompute = {every = 2, prefix = [1, 0]}"),
    "1f1b": Way("1f1b", num_stages=2, more="recompute = {every = 2}\ncuts = [4]"),
    "ddp": Way("ddp", num_microbatches=1, data_parallel=2),
    "hybrid": Way("hybrid", num_stages=2, num_microbatches=1, data_parallel=2),
}
"""All use 8 tiles per step, 4 per micro-batch."""


STARTS = [
    pytest.param(train_forked, id="forked"),
    pytest.param(train, id="gemslide", marks=pytest.mark.prove),
]


@pytest.fixture(scope="module", params=STARTS)
def single(request, small_project, tmp_path_factory):
    return _train(small_project, tmp_path_factory.mktemp("single"), WAYS["single"], request.param)


def _train(small_project, folder, way, start, change=("", "")):
    """Train for an epoch in a separate project."""
    share_tiles(small_project.project, folder)
    recipe = way.write(folder / "r.toml", steps=STEPS)
    recipe.write_text(recipe.read_text().replace(f"steps = {STEPS}", "epochs = 1").replace(*change))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # bit equality holds for the same number of threads
        return folder, start(recipe, folder, way.num_ranks)


def test_a_run_in_parts_ends_with_the_weights_of_virtual_parts_in_one_process(small_project, tmp_path):
    two = _train(small_project, tmp_path / "two", Way(more="parts = 2", parts=2), train_forked)[1]
    one = _train(small_project, tmp_path / "one", Way(more="parts = 2\nvirtual_parts = true"), train_forked)[1]
    assert two == one  # the model id contains the SHA-256 of the weights


def _record(folder):
    (path,) = (folder / "runs").glob("*.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("master", train),
        *(pytest.param(name, train_forked) for name in WAYS if name not in ("single", "master")),
        *(pytest.param(name, train, marks=pytest.mark.prove) for name in WAYS if name != "master"),
    ],
)
def test_a_run_on_several_ranks_ends_with_the_weights_of_one_process(small_project, single, tmp_path, name, start):
    folder, trained = _train(small_project, tmp_path, WAYS[name], start)

    assert trained == single[1]  # the model id contains the SHA-256 of the weights
    ours = load_file(folder / "models" / trained.last / "model.safetensors")
    theirs = load_file(single[0] / "models" / single[1].last / "model.safetensors")
    assert all(theirs[name].equal(value) for name, value in ours.items())
    assert _record(folder)["epochs"] == _record(single[0])["epochs"]
    _check_plan_and_memory(_record(folder), WAYS[name], tile_px=TILES.tile_px)


def test_one_process_keeps_what_was_predicted(single):
    _check_plan_and_memory(_record(single[0]), WAYS["single"], tile_px=TILES.tile_px)


def _check_plan_and_memory(record, way, *, tile_px):
    """Check that aliases are resolved, and that every rank kept the bytes predicted without training."""
    recipe = Recipe.model_validate(record["settings"])
    blocks = blocks_of(recipe.model, tile_px)
    plan = plan_of(recipe, blocks, tile_px, torch.device("cpu"))
    batch = TensorBatch(
        tuple((torch.empty(4, 3, tile_px, tile_px), torch.zeros(4, dtype=torch.int64)) for _ in range(2))
    )
    predicted = predict_memory(blocks, cross_entropy, batch, plan)

    assert record["plan"]["strategy"] == {"mast": "master", "hybrid": "master", "ddp": "single"}.get(
        way.strategy, way.strategy
    )
    assert record["plan"]["named"] == way.strategy
    assert record["plan"]["num_stages"] == way.num_stages
    assert record["plan"]["num_microbatches"] == way.num_microbatches
    assert record["plan"]["data_parallel"] == way.data_parallel
    assert record["plan"]["recompute"] == record["settings"]["parallel"]["recompute"]
    assert sum(record["plan"]["blocks_per_stage"]) == len(blocks)
    assert record["memory"] == {"live": [memory.peak_bytes for memory in predicted] * way.data_parallel}
    assert min(record["memory"]["live"]) > 0


@pytest.mark.parametrize("start", STARTS)
def test_recompute_keeps_less_than_it_would_without(single, small_project, tmp_path, start):
    way = Way("single", more="recompute = {every = 2}")

    folder, trained = _train(small_project, tmp_path, way, start)

    assert trained == single[1]
    assert _record(folder)["memory"]["live"][0] < 0.8 * _record(single[0])["memory"]["live"][0]


@pytest.mark.parametrize("start", STARTS)
def test_the_network_of_the_gems_authors_trains_and_gives_probabilities(small_project, tmp_path, start):
    way = Way("master", num_stages=2)

    folder, trained = _train(
        small_project, tmp_path, way, start, change=("depth = 11", 'depth = 11\nvariant = "gems-public"')
    )

    classifier = Classifier.load(folder / "models" / trained.last)
    tiles_nhwc = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    probabilities_nk = classifier.predict(tiles_nhwc)
    assert probabilities_nk.shape == (5, 2)
    assert np.allclose(probabilities_nk.sum(axis=1), 1, atol=1e-6)
    metrics = _record(folder)["epochs"][-1]
    # Of the probabilities themselves: a second softmax would keep both classes of every tile above 0.26.
    assert metrics["accuracy"] > 0.9
    assert metrics["loss"] < 0.31
    _check_plan_and_memory(_record(folder), way, tile_px=TILES.tile_px)


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


def test_loss_metrics_and_images_are_in_the_tensorboard_file(single):
    log = _events(single[0])

    assert {"train/loss", "train/lr", "val/loss", "val/accuracy", "val/auc"} <= set(log.Tags()["scalars"])
    assert {"val/confusion", "val/tiles"} <= set(log.Tags()["images"])
    assert len(log.Scalars("train/loss")) == STEPS  # the last batch had the rest of the epoch


@pytest.mark.parametrize("start", STARTS)
def test_clipping_shows_the_norm_of_all_gradients(small_project, tmp_path, start):
    share_tiles(small_project.project, tmp_path)
    recipe = Way("single").write(tmp_path / "r.toml", steps=SHORT)
    recipe.write_text(recipe.read_text().replace("lr = 0.05", "lr = 0.05\nclip_norm = 0.5"))

    start(recipe, tmp_path, 1)

    norms = [scalar.value for scalar in _events(tmp_path).Scalars("train/gradient_norm")]
    assert len(norms) == SHORT
    assert min(norms) > 0.5  # before clipping


def _events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = (folder / "runs" / "tensorboard").glob("*/events*")
    log = EventAccumulator(str(events))
    log.Reload()
    return log


@pytest.fixture(params=["checked", pytest.param("gemslide", marks=pytest.mark.prove)])
def refused(request, gemslide_process):
    """Error code and message of a run that does not start, from the check itself or from the command's output."""

    def check(recipe, project, num_ranks):
        with pytest.raises(GemslideError) as error:
            check_run(recipe, project, num_ranks)
        return error.value.code, str(error.value)

    def command(recipe, project, num_ranks):
        done = gemslide_process("train", recipe, "--project", project, "--nproc", num_ranks)
        assert done.code == 1
        return re.search(r"^error \[(\w+)\]: (.*)", done.err, re.MULTILINE | re.DOTALL).groups()

    return command if request.param == "gemslide" else check


def test_a_world_size_that_does_not_fit_is_one_message(small_project, refused, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", strategy="master", num_stages=2)

    code, message = refused(recipe, small_project.project.root, 3)

    assert code == "wrong_world_size"
    assert "needs 2 ranks, but 3 are started" in message


def test_a_tile_set_that_is_not_there_is_one_message(small_project, gemslide_process, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml")
    recipe.write_text(recipe.read_text().replace('"small"', '"smaal"'))

    done = gemslide_process("train", recipe, "--project", small_project.project.root, "--json")

    assert done.code == 1
    assert json.loads(done.out)["code"] == "empty_table"
    assert "Did you mean small?" in done.err


def test_a_tile_that_the_network_cannot_take_is_one_message(small_project, refused, tmp_path):
    (tmp_path / "slides").symlink_to(small_project.project.slides_dir)
    tiles = TileConfig(tile_px=48, mpp=1.0, classes=("cold", "warm"))
    make_tile_table(Project(tmp_path), "small", tiles, cohort=load_cohort(small_project.cohort))
    recipe = write_recipe(tmp_path / "r.toml")
    recipe.write_text(recipe.read_text().replace("depth = 11", 'depth = 11\nvariant = "gems-public"'))

    code, message = refused(recipe, tmp_path, 1)

    assert code == "bad_recipe"
    assert message.startswith("r.toml, tile set 'small'")
    assert "a multiple of 32 px, got 48; use 32 or 64" in message


def test_more_stages_than_blocks_are_refused(small_project, tmp_path):
    recipe = write_recipe(tmp_path / "r.toml", strategy="master", num_stages=6)

    with pytest.raises(BadRecipeError, match=r"cannot cut 5 blocks into 6 stages .* use num_stages from 1 to 5"):
        check_run(recipe, small_project.project.root, 6)


def test_torchrun_with_a_misspelt_key_says_so_once(tmp_path):
    recipe = write_recipe(tmp_path / "r.toml")
    recipe.write_text(recipe.read_text().replace("tile_set", "tileset"))
    command = [sys.executable, "-m", "training.train", str(recipe), "--project", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("error [bad_recipe]")
    assert done.stderr.count("did you mean `tile_set`") == 1


def test_a_recipe_whose_name_cannot_name_a_model_is_refused(small_project, refused, tmp_path):
    recipe = write_recipe(tmp_path / "tiny (1).toml")

    code, message = refused(recipe, small_project.project.root, 1)

    assert code == "bad_recipe"
    assert message.startswith("tiny (1).toml")


def test_diverged_training_is_one_message_and_leaves_no_model(small_project, gemslide_process, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = write_recipe(tmp_path / "r.toml", steps=6)
    recipe.write_text(recipe.read_text().replace("lr = 0.05", "lr = 1e30"))

    done = gemslide_process("train", recipe, "--project", tmp_path)

    assert done.code == 1
    assert "error [insane_output]: training diverged: step 1: the loss of micro-batch 0" in done.err
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("stop", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.prove)])
def test_stopping_gemslide_stops_every_rank_and_publishes_nothing(small_project, tmp_path, stop):
    share_tiles(small_project.project, tmp_path)
    recipe = write_recipe(tmp_path / "r.toml", strategy="master", num_stages=2, steps=100_000)
    command = [str(Path(sys.executable).parent / "gemslide"), "train", str(recipe), "--project", str(tmp_path)]
    with subprocess.Popen([*command, "--nproc", "2"], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            runs = tmp_path / "runs" / "tensorboard"
            wait_until(lambda: any(path.stat().st_size > 2000 for path in runs.glob("*/events*")), seconds=240)
            family = psutil.Process(process.pid).children(recursive=True)
            assert len(family) >= 3  # the launcher and two ranks

            process.send_signal(stop)
            _, errors = process.communicate(timeout=100)
        finally:
            process.kill()

    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, (gone, alive)
    assert process.returncode != 0
    assert b"Traceback" not in errors
    assert not (tmp_path / "models").exists()
    assert _record(tmp_path)["outcome"] == "interrupted"


ASKED_TO_END_AT_EXIT = """
import atexit, os, signal, sys
atexit.register(lambda: print("still here"))
atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))
from training.train import main
sys.exit(main())
"""


def test_a_rank_that_is_asked_to_end_while_it_ends_says_nothing_more(tmp_path):
    command = [sys.executable, "-c", ASKED_TO_END_AT_EXIT, tmp_path / "missing.toml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert (done.returncode, done.stdout) == (2, "still here\n")
    assert done.stderr.startswith("error [")
    assert "Traceback" not in done.stderr


def test_fresh_goes_with_the_command_and_not_with_the_restarts_of_torchrun(tmp_path):
    command = [sys.executable, "-m", "training.train", "r.toml", "--project", tmp_path, "--fresh"]
    under_torchrun = {**os.environ, "TORCHELASTIC_RUN_ID": "one"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=under_torchrun)

    assert done.returncode == 2
    assert (
        "error [bad_recipe]: --fresh under torchrun: ranks that it restarts would start from scratch, too."
        in done.stderr
    )
