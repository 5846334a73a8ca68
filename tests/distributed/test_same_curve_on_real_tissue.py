"""Steps on real tissue through the whole workflow give the same bits however the network is spread over ranks."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.crc_project import crc_project
from tests.distributed.starts import train, train_forked

CLIP_NORM = 2.0
RECIPE = """
[data]
tile_set = "crc"
balance = true
[model]
depth = 11
num_classes = 5
[parallel]
microbatch_size = 4
{parallel}
[optim]
lr = 0.05
warmup_steps = 10
weight_decay = 5e-4
clip_norm = {clip_norm}
[train]
steps = {steps}
[augment]
brightness = 0.05
contrast = 0.1
stain = 0.35
"""
WAYS = {
    "single": (1, 'strategy = "single"\nnum_microbatches = 4'),
    "master": (2, 'strategy = "master"\nnum_stages = 2\nnum_microbatches = 4'),
    "hybrid": (4, 'strategy = "hybrid"\nnum_stages = 2\nnum_microbatches = 2\ndata_parallel = 2'),
}
"""Number of ranks and `[parallel]`, each with batches of 16 tiles."""


@pytest.fixture
def one_thread_in_ranks(monkeypatch):
    """Limit ranks to one thread: with more, convolutions add in another order."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.data
@pytest.mark.usefixtures("one_thread_in_ranks")
@pytest.mark.parametrize(
    ("steps", "start"),
    [(12, train_forked), pytest.param(200, train, marks=[pytest.mark.prove, pytest.mark.timeout(1500)])],
)
def test_single_master_and_hybrid_have_one_loss_curve(real_slides, tmp_path_factory, steps, start):
    curves, norms, models, records = {}, {}, {}, {}
    for way, (num_ranks, parallel) in WAYS.items():
        project = crc_project(real_slides, tmp_path_factory)
        recipe = project.root / "crc.toml"
        recipe.write_text(RECIPE.format(parallel=parallel, clip_norm=CLIP_NORM, steps=steps))

        models[way] = start(recipe, project.root, num_ranks)  # ids contain the hash of the weights

        curves[way] = _scalars(project, "train/loss")
        norms[way] = _scalars(project, "train/gradient_norm")
        (path,) = project.runs_dir.glob("*.json")
        records[way] = json.loads(path.read_text())
        print(way, records[way]["seconds"], records[way]["memory"])

    assert len(curves["single"]) == steps
    assert curves["master"] == curves["hybrid"] == curves["single"]
    assert norms["master"] == norms["hybrid"] == norms["single"]
    sizes = [norm for _, norm in norms["single"]]
    print(sorted(sizes)[::20], curves["single"][::25])
    assert min(sizes) < CLIP_NORM < max(sizes)  # some steps were clipped, others not
    # TensorBoard stores a loss in 32 bits; the mean in the record has 64.
    mean_loss = {way: record["epochs"][-1]["train_loss"] for way, record in records.items()}
    assert mean_loss["master"] == mean_loss["hybrid"] == mean_loss["single"]
    assert models["master"] == models["hybrid"] == models["single"]


def _scalars(project, tag):
    (events,) = (project.runs_dir / "tensorboard").glob("*/events*")
    log = EventAccumulator(str(events))
    log.Reload()
    return [(scalar.step, scalar.value) for scalar in log.Scalars(tag)]
