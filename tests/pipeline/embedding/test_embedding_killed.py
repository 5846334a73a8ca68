"""The chaos run of embedding (`make chaos`), with few kills."""

from __future__ import annotations

from tests.pipeline.embedding.chaos import make_embedding
from tests.pipeline.slide_chaos import run


def test_four_kills_at_random_moments_change_no_feature_and_repeat_at_most_a_batch_each(tmp_path):
    (tmp_path / "source").mkdir()
    tally = run(make_embedding(tmp_path / "source"), tmp_path, times=4, seed=2)

    assert tally.killed == 4
    assert tally.killed_with_batches >= 1, tally
    assert tally.repeated <= 4
