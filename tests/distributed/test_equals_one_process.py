"""Splitting a network over ranks changes nothing: not one bit of losses, gradients, weights or statistics.

Strategies, stages S, micro-batches N, groups D and micro-batch sizes are crossed fully; recomputation and memory format
are crossed with all that for N = 4 micro-batches of two, and go round in the rest.
"""

from dataclasses import replace
from functools import cache
from itertools import cycle, islice, product

import pytest

from tests.distributed.launch import run_ranks
from tests.distributed.networks import group_norm_resnet, odd_norms_network, tuple_network
from tests.distributed.problem import Case, differences, evenly, expected_questions, train, train_all
from training.engine.recompute import Recompute
from training.engine.schedule import STRATEGIES

WORLDS = {1: [(1, 1)], 2: [(2, 1), (1, 2)], 3: [(3, 1)], 4: [(4, 1), (2, 2)], 6: [(3, 2)], 8: [(4, 2)]}
"""Number of ranks to the (S, D) that need it."""
UNEVEN = ((2, 2, 2, 2, 2, 2, 1), (2, 2, 1), (1,))
"""Seven, three and one micro-batches in three steps, the last of each smaller."""

pytestmark = pytest.mark.usefixtures("one_thread")


def strategies_for(num_stages: int) -> list[str]:
    return [s for s in STRATEGIES if (s != "single" or num_stages == 1) and (s != "chimera" or num_stages % 2 == 0)]


def ways(num_stages: int) -> list[tuple[Recompute, bool]]:
    """None, every block, every second block, a prefix of each stage; each in both memory formats."""
    prefix = Recompute(1, prefix=(1, 0, 1, 1)[:num_stages])
    return list(product((Recompute(), Recompute(1), Recompute(2), prefix), (False, True)))


def matrix(num_stages: int, data_parallel: int) -> list[Case]:
    cases = []
    for strategy in strategies_for(num_stages):
        start = STRATEGIES.index(strategy) + 3 * num_stages + data_parallel
        turns = islice(cycle(ways(num_stages)), start, None)
        for n, samples in product((1, 2, 4, 6), (1, 2)):
            num_ways = 8 if (n, samples) == (4, 2) else 2 if n == 4 else 1
            batches = evenly(n * data_parallel, samples)
            cases += [Case(strategy, num_stages, batches, data_parallel, *next(turns)) for _ in range(num_ways)]
    return cases


def others(num_stages: int, data_parallel: int) -> list[Case]:
    """Uneven batches, bf16, clipping, shapes that differ within a step, tuples between stages, other norms and cuts."""
    four = evenly(4 * data_parallel)
    cases = []
    for strategy in strategies_for(num_stages):
        plain = Case(strategy, num_stages, four, data_parallel)
        other = replace(plain, recompute=Recompute(2), channels_last=True)
        cases += [replace(way, batches=UNEVEN, then_infer=True) for way in (plain, other)]
        cases += [replace(way, precision="bf16") for way in (plain, other)]
        cases += [replace(way, network=odd_norms_network) for way in (plain, other)]
        cases += [replace(plain, network=group_norm_resnet), replace(other, mixed_shapes=True, clip_norm=0.5)]
        if num_stages <= 3:
            cases += [replace(way, network=tuple_network, batches=UNEVEN) for way in (plain, other)]
    costs = [tuple(9.0 if block == big else 1.0 for block in range(5)) for big in range(5)]
    return cases + [Case("master", num_stages, four, data_parallel, channels_last=True, costs=one) for one in costs]


single = cache(train)


@pytest.mark.parametrize("num_ranks", WORLDS)
def test_splitting_the_network_changes_no_bit(num_ranks):
    cases = [case for s, d in WORLDS[num_ranks] for case in (*matrix(s, d), *others(s, d))]
    by_rank = run_ranks(num_ranks, train_all, cases)

    for index, case in enumerate(cases):
        outcomes = [outcomes[index] for outcomes in by_rank]
        assert differences(outcomes, single(None, case.as_single)) == [], case
        for rank, outcome in enumerate(outcomes):
            assert sorted(outcome.asked) == expected_questions(case, rank), case
