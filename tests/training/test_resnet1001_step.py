"""The deepest recipe takes one real optimizer step on small tiles: as shipped 335 blocks, two stages, recomputed."""

import pytest

from pipeline.settings.config import TileConfig
from tests.distributed.starts import train, train_forked
from tests.one_step import take_one_step


@pytest.mark.parametrize(
    ("depth", "start", "blocks_per_stage", "num_weights"),
    [
        pytest.param(92, train_forked, [19, 13], 2_744_914, id="92 layers"),
        pytest.param(
            1001, train, [205, 130], 30_249_234, id="as shipped", marks=[pytest.mark.prove, pytest.mark.timeout(1500)]
        ),
    ],
)
def test_resnet_1001_takes_an_optimizer_step(tmp_path, depth, start, blocks_per_stage, num_weights):
    tiles = TileConfig(tile_px=64, mpp=4.0)

    step = take_one_step("resnet1001_512.toml", tmp_path, tiles, start, depth=depth)

    assert step.record["outcome"] == "done"
    assert step.record["plan"]["blocks_per_stage"] == blocks_per_stage
    assert step.num_weights == num_weights
    assert step.record["epochs"][0]["train_loss"] == pytest.approx(0.69, abs=0.5)
    assert all(v.isfinite().all() for v in step.state.values())
    # 64 px have 1/64 of the pixels of 512 px, for which the recipe states 1.3 GB; fewer blocks need less.
    assert all(0 < live < 1.4e9 / 64 for live in step.record["memory"]["live"])
