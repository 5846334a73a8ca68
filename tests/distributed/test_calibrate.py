"""Measuring this machine for a recipe, on real ranks, and the plan that has its seconds afterwards."""

from pathlib import Path

import pytest
import torch

from tests.distributed.launch import run_ranks
from training.engine.ranks import Ranks
from training.oracle.calibration import measure_blocks
from training.recipe.config import load_recipe
from training.tools.calibrate import measure
from training.tools.on_ranks import Measuring
from training.tools.show_plan import show_plan

RECIPE = """
[data]
tile_set = "none"
[model]
depth = 11
num_classes = 3
[parallel]
strategy = "1f1b"
num_stages = 2
num_microbatches = 4
microbatch_size = 2
[train]
steps = 1
"""
SIDE_PX = 32

pytestmark = pytest.mark.usefixtures("one_thread")


def _measure(ranks: Ranks, recipe: str, project: str) -> dict[str, object]:
    measure_blocks.LEAST_SHARE, measure_blocks.BUDGET_S = 0.0, 1.0  # tests run beside each other
    return measure(Measuring(load_recipe(Path(recipe)), SIDE_PX, ranks, torch.device("cpu"), Path(project)))


def test_a_plan_has_seconds_once_its_machine_is_measured(tmp_path):
    recipe = tmp_path / "a.toml"
    recipe.write_text(RECIPE)
    before = show_plan(recipe, tmp_path, tile_px=SIDE_PX, svg=False)
    outcome, same = run_ranks(2, _measure, str(recipe), str(tmp_path))
    after = show_plan(recipe, tmp_path, tile_px=SIDE_PX, svg=False)
    other_side = show_plan(recipe, tmp_path, tile_px=2 * SIDE_PX, svg=False)

    assert outcome["machine"] == same["machine"]
    assert outcome["num_measured"] < outcome["num_blocks"] + 1
    assert before["machine"] is other_side["machine"] is None
    assert all(row["seconds"] is None for row in before["comparison"])
    assert after["machine"].startswith("2 ranks of 1 thread on ")
    seconds = {row["strategy"]: row["seconds"] for row in after["comparison"]}
    own = next(row for row in after["comparison"] if row["strategy"] == "1f1b")
    assert after["step_s"] == pytest.approx(own["seconds"])
    assert min(seconds.values()) > 0
    _check_search(recipe, tmp_path)


def _check_search(recipe: Path, project: Path) -> None:
    """The search's plans are ranked, fit, and are those that the seconds of the plan itself lead to."""
    free = show_plan(recipe, project, tile_px=SIDE_PX, svg=False, num_ranks=2)["search"]
    cap_bytes = sorted(row["bytes"] for row in free["rows"])[len(free["rows"]) // 4]
    tight = show_plan(recipe, project, tile_px=SIDE_PX, svg=False, cap_bytes=cap_bytes)["search"]

    seconds = [row["seconds"] for row in free["rows"]]
    slower = [each for each in seconds if each > 1.01 * min(seconds)]
    assert seconds[len(seconds) - len(slower) :] == sorted(slower)
    assert {row["num_stages"] * row["data_parallel"] for row in free["rows"]} == {2}
    assert {row["num_stages"] * row["data_parallel"] for row in tight["rows"]} == {2}
    assert all(row["data_parallel"] * row["num_microbatches"] == 4 for row in free["rows"])
    assert all(0 <= row["communication"] < 1 for row in free["rows"][:10])
    assert free["rows"][0]["tiles_per_s"] == pytest.approx(8 / seconds[0])
    assert max(row["bytes"] for row in tight["rows"]) <= cap_bytes < max(row["bytes"] for row in free["rows"])
    assert min(row["seconds"] for row in tight["rows"]) >= min(seconds)
