"""The deepest recipe, as shipped, takes one real optimizer step on small tiles: 335 blocks, two stages, recomputed."""

import pytest

from pipeline.config import TileConfig
from tests.one_step import take_one_step


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_resnet_1001_takes_an_optimizer_step(tmp_path):
    step = take_one_step("resnet1001_512.toml", tmp_path, TileConfig(tile_px=64, mpp=4.0))

    assert step.record["outcome"] == "done"
    assert step.record["plan"]["blocks_per_stage"] == [205, 130]
    assert step.num_weights == 30_249_234
    assert step.record["epochs"][0]["train_loss"] == pytest.approx(0.69, abs=0.5)
    assert all(v.isfinite().all() for v in step.state.values())
    # 64 px have a 64th of the pixels of 512 px, for which the recipe names 1.3 GB.
    assert all(live < 1.4e9 / 64 for live in step.record["memory"]["live"])
