"""Ingest killed at random moments; `make chaos`, and so `make prove`, does it a hundred times."""

from __future__ import annotations

from tests.pipeline.ingest.chaos import run


def test_four_kills_at_random_moments_leave_no_half_store_and_lose_no_finished_shard(tmp_path):
    tally = run(tmp_path, times=4, seed=3)

    assert tally.killed == 4
    assert tally.killed_with_two > 0, tally
    assert tally.shards_found > 0, tally
