"""The real recipe takes one real optimizer step: ResNet-110-v2, two stages, bf16; as shipped on tiles of 1024 px."""

import pytest

from pipeline.settings.config import TileConfig
from tests.distributed.starts import train, train_forked
from tests.one_step import take_one_step


@pytest.mark.parametrize(
    ("tile_px", "start"),
    [
        (128, train_forked),
        pytest.param(1024, train, marks=[pytest.mark.prove, pytest.mark.timeout(1500)]),
    ],
)
def test_resnet_110_takes_an_optimizer_step(tmp_path, tile_px, start):
    tiles = TileConfig(tile_px=tile_px, mpp=0.5 * 1024 / tile_px)

    step = take_one_step("resnet110_1024.toml", tmp_path, tiles, start, depth=110)

    assert step.record["outcome"] == "done"
    assert sum(step.record["plan"]["blocks_per_stage"]) == 38
    assert step.num_weights == 3_289_554
    assert step.record["epochs"][0]["train_loss"] == pytest.approx(0.69, abs=0.5)
    assert all(v.isfinite().all() for v in step.state.values())
    as_the_recipe_says = 5.2e9 * (tile_px / 1024) ** 2
    assert step.record["memory"]["live"] == pytest.approx([as_the_recipe_says] * 2, rel=0.02)
