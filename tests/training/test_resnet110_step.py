"""The real recipe, as shipped, takes one real optimizer step: ResNet-110-v2, 1024 px tiles, two stages, bf16."""

import pytest

from pipeline.config import TileConfig
from tests.one_step import take_one_step


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_resnet_110_takes_an_optimizer_step_on_1024_px_tiles(tmp_path):
    step = take_one_step("resnet110_1024.toml", tmp_path, TileConfig(tile_px=1024, mpp=0.5))

    assert step.record["outcome"] == "done"
    assert sum(step.record["plan"]["blocks_per_stage"]) == 38
    assert step.num_weights == 3_289_554
    assert step.record["epochs"][0]["train_loss"] == pytest.approx(0.69, abs=0.5)
    assert all(v.isfinite().all() for v in step.state.values())
    assert step.record["memory"]["live"] == pytest.approx([5.2e9] * 2, rel=0.02)  # as the recipe says
