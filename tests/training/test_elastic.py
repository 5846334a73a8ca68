"""The same training run on other numbers of ranks."""

from __future__ import annotations

import pytest

from training.recipe.elastic import spread_over
from training.recipe.parallel import ParallelConfig

HYBRID = ParallelConfig(strategy="hybrid", num_stages=2, num_microbatches=4, microbatch_size=3, data_parallel=2)


@pytest.mark.parametrize(
    ("num_ranks", "strategy", "num_stages", "num_microbatches", "data_parallel"),
    [
        (4, "hybrid", 2, 4, 2),
        (2, "master", 2, 8, 1),
        (1, "single", 1, 8, 1),
        (8, "master", 2, 2, 4),
        (6, "master", 3, 4, 2),
        (5, "master", 5, 8, 1),
    ],
)
def test_any_number_of_ranks_has_the_same_batch_and_micro_batches(
    num_ranks, strategy, num_stages, num_microbatches, data_parallel
):
    spread = spread_over(HYBRID, num_ranks, most_stages=9)

    settings = (spread.strategy, spread.num_stages, spread.num_microbatches, spread.data_parallel)
    assert settings == (strategy, num_stages, num_microbatches, data_parallel)
    assert spread.world_size == num_ranks
    assert (spread.batch_size, spread.microbatch_size) == (HYBRID.batch_size, HYBRID.microbatch_size)


def test_chimera_on_an_odd_number_of_stages_is_1f1b():
    chimera = ParallelConfig(strategy="chimera", num_stages=4, num_microbatches=4)

    assert spread_over(chimera, 5, most_stages=9).strategy == "1f1b"
    assert spread_over(chimera, 6, most_stages=9).strategy == "chimera"


def test_ranks_that_cannot_share_out_the_micro_batches_evenly_hold_stages_instead():
    alone = ParallelConfig(strategy="ddp", num_microbatches=1, microbatch_size=2, data_parallel=4)

    assert spread_over(alone, 2, most_stages=9).strategy == "single"
    spread = spread_over(alone, 3, most_stages=9)
    assert (spread.strategy, spread.num_stages, spread.num_microbatches) == ("mp-basic", 3, 4)


def test_a_network_of_few_blocks_is_spread_over_more_groups_instead():
    deep = ParallelConfig(strategy="master", num_stages=4, num_microbatches=6)

    assert spread_over(deep, 6, most_stages=9).num_stages == 6
    spread = spread_over(deep, 6, most_stages=5)
    assert (spread.num_stages, spread.data_parallel, spread.num_microbatches) == (3, 2, 3)
    assert spread_over(deep, 7, most_stages=5) == deep


def test_a_prefix_names_stages_and_cannot_be_elastic():
    with pytest.raises(ValueError, match="with elastic their number may change"):
        ParallelConfig(
            strategy="master", num_stages=2, num_microbatches=2, elastic=True,
            recompute={"every": 2, "prefix": [1, 0]},
        )  # fmt: skip


def test_a_run_in_parts_goes_on_on_any_ranks_in_as_many_parts():
    """Parts decide the order of sums, so they stay; where there are no ranks for them, they are virtual."""
    parts = ParallelConfig(strategy="single", num_microbatches=4, parts=2, elastic=True)

    def spread(num_ranks):
        found = spread_over(parts, num_ranks, most_stages=9)
        assert (found.world_size, found.parts) == (num_ranks, 2)
        return found.strategy, found.num_stages, found.data_parallel, found.num_microbatches, found.virtual_parts

    assert spread(2) == ("single", 1, 1, 4, False)
    assert spread(1) == ("single", 1, 1, 4, True)
    assert spread(4) == ("single", 1, 2, 2, False)
    assert spread(8) == ("single", 1, 4, 1, False)


def test_a_run_in_sub_graphs_goes_on_in_as_many_on_any_ranks():
    recipe = ParallelConfig(strategy="subgraph", num_subgraphs=2, num_microbatches=4, elastic=True)
    for num_ranks, groups, is_virtual in ((2, 1, False), (4, 2, False), (8, 4, False), (1, 1, True)):
        found = spread_over(recipe, num_ranks, most_stages=9)
        assert (found.world_size, found.data_parallel, found.virtual_parts) == (num_ranks, groups, is_virtual)
        assert (found.parts_of_stages, found.split_of_stages) == ((2,), ("branches",))
        assert found.batch_size == recipe.batch_size


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": [2]}, "give a number of 1 or more for each of 2 stages"),
        ({"parts": 2, "split": ["rows"]}, "for each of 2 stages"),
        ({"parts": [2, 1], "strategy": "master"}, "the same from both ends"),
        ({"parts": 2, "virtual_parts": True}, "virtual parts are for one stage"),
        ({"virtual_parts": True}, "virtual_parts needs parts of 2 or more"),
        ({"parts": 2, "recompute": "norm"}, r"recompute = \{every = 1\} can"),
        ({"parts": [2, 1], "elastic": True}, "parts that differ between stages"),
    ],
)
def test_parts_that_do_not_fit_are_refused_and_the_message_says_why(settings, message):
    with pytest.raises(ValueError, match=message):
        ParallelConfig.model_validate({"strategy": "gpipe", "num_stages": 2, "num_microbatches": 2, **settings})
