"""The plan shown for a recipe is what the engine will do with it."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from training import engine
from training.engine.engine import Engine
from training.engine.partition import BlockCost
from training.engine.ranks import alone
from training.engine.strategies import STRATEGIES
from training.foundation.errors import BadRecipeError
from training.models.build import build_blocks
from training.recipe.config import load_recipe
from training.recipe.dividing import least_memory
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import blocks_of, plan_of
from training.tools.show_plan import show_plan

RECIPE = """
[data]
tile_set = "none"
[model]
depth = 11
num_classes = 3
{model}
[parallel]
strategy = "{strategy}"
num_stages = {num_stages}
num_microbatches = {num_microbatches}
microbatch_size = 2
{parallel}
[train]
steps = 1
"""
SIDE_PX = 32

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def shown(tmp_path):
    def show(strategy, *, num_stages=2, num_microbatches=4, parallel="", model="", tile_px=SIDE_PX, svg=False):
        path = tmp_path / "a.toml"
        path.write_text(
            RECIPE.format(
                strategy=strategy,
                num_stages=num_stages,
                num_microbatches=num_microbatches,
                parallel=parallel,
                model=model,
            )
        )
        return show_plan(path, tmp_path, tile_px=tile_px, svg=svg)

    return show


def test_each_rank_s_blocks_operations_and_weights_add_up_to_the_network(shown):
    report = shown("master", num_stages=3)
    normal = [rank["stages"][0] for rank in report["ranks"]]
    mirrored = [rank["stages"][1] for rank in report["ranks"]]
    blocks = build_blocks(name="resnet_v2", depth=11, num_classes=3, variant="standard", norm="batch", side_px=SIDE_PX)
    costs = engine.block_costs(blocks, (2, 3, SIDE_PX, SIDE_PX))
    weight_bytes = sum(t.numel() * t.element_size() for t in nn.Sequential(*blocks).state_dict().values())

    assert [stage["stage"] for stage in normal] == [0, 1, 2]
    assert [{**stage, "is_mirrored": False} for stage in reversed(mirrored)] == normal
    assert all(stage["is_mirrored"] for stage in mirrored)
    assert normal[0]["blocks"][0] == 0
    assert normal[-1]["blocks"][1] == len(blocks) - 1
    assert all(before["blocks"][1] + 1 == after["blocks"][0] for before, after in pairwise(normal))
    assert sum(stage["forward_flops"] for stage in normal) == sum(cost.flops for cost in costs)
    first, last = normal[1]["blocks"]
    middle = nn.Sequential(*blocks[first : last + 1]).state_dict().values()
    middle_bytes = sum(t.numel() * t.element_size() for t in middle)
    # The middle rank holds its stage for both replicas, but only once.
    assert sum(rank["weight_bytes"] for rank in report["ranks"]) == 2 * weight_bytes - middle_bytes


@pytest.mark.parametrize("parallel", ["", "recompute = {every = 2}", "recompute = {every = 1, prefix = [3]}"])
def test_the_live_bytes_are_those_that_a_step_of_the_recipe_has(shown, tmp_path, parallel):
    report = shown("single", num_stages=1, parallel=parallel)
    recipe = load_recipe(tmp_path / "a.toml")
    blocks = blocks_of(recipe.model, SIDE_PX)
    runner = Engine(blocks, plan_of(recipe, blocks, SIDE_PX, torch.device("cpu")), ranks=alone(), count_bytes=True)
    images, labels = torch.randn(2, 3, SIDE_PX, SIDE_PX), torch.zeros(2, dtype=torch.int64)
    batch = engine.TensorBatch(tuple((images.clone(), labels.clone()) for _ in range(4)))
    for _ in range(2):
        runner.train_step(batch, cross_entropy)

    assert [rank["peak_live_bytes"] for rank in report["ranks"]] == [runner.live_bytes.peak]


def test_aliases_are_spelled_out_and_groups_counted(shown):
    report = shown("hybrid", parallel="data_parallel = 3")

    assert (report["named"], report["strategy"]) == ("hybrid", "master")
    assert (report["world_size"], report["batch_size"], report["num_stages"]) == (6, 24, 2)
    assert len(report["ranks"]) == 2
    assert report["drawing"].splitlines()[0].split("  ") == ["clock", "rank 0", "rank 1"]


def test_what_fits_is_compared_and_chimera_left_out_where_stages_are_odd(shown):
    names = {n: [r["strategy"] for r in shown("1f1b", num_stages=n)["comparison"]] for n in (2, 3)}
    alone = shown("single", num_stages=1)["comparison"]

    assert names[2] == [*STRATEGIES, "ddp", "ddp"]
    assert names[3] == [name for name in names[2] if name != "chimera"]
    assert [row["strategy"] for row in alone] == ["single", "single"]
    assert alone[0]["recompute"] == "none" != alone[1]["recompute"]


def test_the_comparison_ranks_time_and_memory_as_theory_does(shown):
    *rows, again = shown("master", num_microbatches=6)["comparison"]
    own = {row["strategy"]: row for row in rows}

    assert own["single"]["time"] == own["mp-basic"]["time"] == 1.0
    assert own["mp-basic"]["bubble"] == pytest.approx(0.5)
    assert own["ddp"]["time"] == pytest.approx(0.5)
    assert own["mp-basic"]["time"] > own["master"]["time"] > own["gpipe"]["time"] >= own["1f1b"]["time"]
    assert own["gpipe"]["kept_bytes"] == 6 * own["mp-basic"]["kept_bytes"] == 6 * own["master"]["kept_bytes"]
    assert own["ddp"]["kept_bytes"] == own["single"]["kept_bytes"] > own["mp-basic"]["kept_bytes"]
    assert own["master"]["weight_bytes"] == own["single"]["weight_bytes"] > own["mp-basic"]["weight_bytes"]
    # All blocks again, except those of the last segment: its backward follows at once.
    assert again["strategy"] == "ddp"
    assert 0.5 < again["time"] < 0.5 * 4 / 3
    assert again["kept_bytes"] < own["ddp"]["kept_bytes"]


def test_the_recomputation_offered_is_the_one_that_keeps_least():
    equal = [BlockCost(flops=10, saved_bytes=90, input_bytes=10)] * 36

    recompute, cost = least_memory(equal)

    assert recompute.every == 2  # 18 inputs and two blocks at a time: 360; one at a time 450, three at a time 390
    assert cost.kept_bytes + cost.recomputed_bytes == 360


def test_recompute_is_described_and_priced(shown):
    plain, again = (shown("mp-basic", parallel=text) for text in ("", "recompute = {every = 2, prefix = [3, 0]}"))
    every = shown("mp-basic", parallel="recompute = {every = 1}")

    assert plain["recompute"] == "none"
    assert again["recompute"] == "every 2 blocks of the first 3, 0 blocks of the stages"
    assert every["recompute"] == "every block"
    assert len(every["comparison"]) == len(plain["comparison"]) - 1  # all blocks do this already
    assert again["ranks"][0]["peak_live_bytes"] < plain["ranks"][0]["peak_live_bytes"]
    assert again["comparison"][1]["time"] == 1.0


def test_a_long_step_is_drawn_with_eight_micro_batches_but_its_numbers_are_whole(shown):
    report = shown("gpipe", num_microbatches=9, svg=True)

    assert report["drawn_microbatches"] == 8
    assert "F7" in report["drawing"]
    assert "F8" not in report["drawing"]
    assert report["comparison"][3]["kept_bytes"] == 9 * report["comparison"][1]["kept_bytes"]
    titles = [title.text for title in ElementTree.fromstring(report["svg"]).iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "gpipe: S = 2 stages, N = 9 micro-batches"
    assert sum(title.startswith("F of stage 0") for title in titles) == 9


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_stages": 40}, "cannot cut 5 blocks into 40 stages"),
        ({"model": 'variant = "gems-public"', "tile_px": 40}, "multiple of 32 px, got 40"),
        ({"tile_px": None}, "no such tile set.*--tile-px 1024"),
    ],
)
def test_a_recipe_that_cannot_be_planned_is_refused_and_explained(shown, options, says):
    from training.foundation.errors import GemslideError

    with pytest.raises((BadRecipeError, GemslideError), match=says):
        shown("mp-basic", **options)
