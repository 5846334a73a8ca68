"""The chaos run (`make chaos-study`), with few slides."""

from __future__ import annotations

import pytest

from tests.pipeline.study.chaos import Chaos, Plan
from tests.pipeline.study.chaos_workers import Disturbance

HOW = Disturbance(workers=3, kill_every_s=2.0, freeze_every_s=5.0, freeze_s=4.5, most_kills=6, most_freezes=1)
PLAN = Plan(slides=14, how=HOW, away_s=1.0, full_s=1.0)


@pytest.mark.xdist_group("study-chaos")
def test_a_study_under_everything_at_once_ends_as_a_calm_one(small_project, tmp_path, postgres):
    happened = Chaos(PLAN, small_project, tmp_path, postgres).run()
    assert happened["killed"]
    assert set(happened["states"]) == {"done", "excluded", "no_tissue", "qc_failed", "refused", "unreadable"}
