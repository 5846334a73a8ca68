"""Ways of splitting a network that must change no bit: all of them, and a small set that covers every two choices.

All: strategies, stages S, micro-batches N, groups D and micro-batch sizes are crossed fully; recomputation and memory
format are crossed with all of these for N = 4 micro-batches of two, and alternate in the rest.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, islice, product
from typing import Any

from tests.distributed.networks import dropout_resnet, group_norm_resnet, odd_norms_network, small_resnet, tuple_network
from tests.distributed.pairwise import cover
from tests.distributed.problem import Case, evenly
from training.engine.recompute import Recompute
from training.engine.strategies import STRATEGIES

LAYOUTS = ((1, 1), (2, 1), (1, 2), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2))
"""(S, D)."""
WORLDS = tuple(sorted({s * d for s, d in LAYOUTS}))
"""Numbers of ranks."""
COUNTS = (1, 2, 4, 6)
"""Micro-batches per group."""
UNEVEN = ((2, 2, 2, 2, 2, 2, 1), (2, 2, 1), (1,))
"""Seven, three and one micro-batches in three steps; the last one of a step is smaller."""
NUM_BLOCKS = {small_resnet: 5, group_norm_resnet: 5, odd_norms_network: 4, tuple_network: 3, dropout_resnet: 5}

FACTORS: Mapping[str, tuple[Any, ...]] = {
    "layout": LAYOUTS,
    "strategy": tuple(STRATEGIES),
    "batches": (*product(COUNTS, (1, 2)), "uneven"),
    "recompute": ("nothing", "every block", "every second block", "a prefix of each stage", "norms", "in host memory"),
    "channels_last": (False, True),
    "precision": ("fp32", "bf16"),
    "network": tuple(NUM_BLOCKS),
    "big_block": (None, 0, 1, 2, 3, 4),
    "clip_norm": (None, 0.5),
    "mixed_shapes": (False, True),
    "then_infer": (False, True),
    "strict": (False, True),
}


SPLIT: dict[str, tuple[Any, ...]] = {
    **FACTORS,
    "layout": tuple(layout for layout in FACTORS["layout"] if layout[0] > 1),
    "strategy": tuple(strategy for strategy in FACTORS["strategy"] if strategy != "single"),
}
"""Factors for a network that is spread over several ranks."""


def is_legal(chosen: Mapping[str, Any]) -> bool:
    """Whether values of some of the `FACTORS` may be combined."""
    num_stages, _ = chosen.get("layout", (None, None))
    strategy = chosen.get("strategy")
    num_blocks = NUM_BLOCKS.get(chosen.get("network", small_resnet), 5)
    if num_stages is not None and strategy is not None and strategy not in strategies_for(num_stages):
        return False
    return (num_stages or 1) <= num_blocks and (chosen.get("big_block") or 0) < num_blocks


def pairwise_cases() -> list[Case]:
    """About a hundred cases that contain every legal pair of values of two factors."""
    return [make_case(**chosen) for chosen in chosen_combinations()]


def chosen_combinations() -> list[dict[str, Any]]:
    """Combine pairs of values that leave the layout open on a split network, if possible."""
    return cover(FACTORS, is_legal, start=cover(SPLIT, is_legal))


def make_case(*, layout: tuple[int, int], batches: Any, recompute: str, big_block: int | None, **others: Any) -> Case:
    """Case for one value per factor."""
    num_stages, data_parallel = layout
    if batches != "uneven":
        num_microbatches, samples = batches
        batches = evenly(num_microbatches * data_parallel, samples)
    else:
        batches = UNEVEN
    costs = None
    if big_block is not None:
        costs = tuple(9.0 if block == big_block else 1.0 for block in range(NUM_BLOCKS[others["network"]]))
    return Case(
        num_stages=num_stages,
        data_parallel=data_parallel,
        batches=batches,
        recompute=dict(zip(FACTORS["recompute"], recomputations(num_stages), strict=True))[recompute],
        costs=costs,
        **others,
    )


def all_cases() -> list[Case]:
    return [case for s, d in LAYOUTS for case in (*matrix(s, d), *others(s, d))]


def strategies_for(num_stages: int) -> list[str]:
    return [row.name for row in STRATEGIES.values() if row.refusal(num_stages) is None]


def recomputations(num_stages: int) -> tuple[Recompute, ...]:
    """Recomputation settings by their names in `FACTORS`."""
    prefix = (1, 0, 1, 1)[:num_stages]
    return (
        Recompute(),
        Recompute(1),
        Recompute(2),
        Recompute(1, prefix=prefix),
        Recompute(rest="norm"),
        Recompute(1, prefix=prefix, rest="offload"),
    )


def matrix(num_stages: int, data_parallel: int) -> list[Case]:
    ways = list(product(recomputations(num_stages), (False, True)))
    cases = []
    for strategy in strategies_for(num_stages):
        start = list(STRATEGIES).index(strategy) + 3 * num_stages + data_parallel
        turns = islice(cycle(ways), start, None)
        for n, samples in product(COUNTS, (1, 2)):
            num_ways = len(ways) if (n, samples) == (4, 2) else 2 if n == 4 else 1
            batches = evenly(n * data_parallel, samples)
            cases += [Case(strategy, num_stages, batches, data_parallel, *next(turns)) for _ in range(num_ways)]
    return cases


def others(num_stages: int, data_parallel: int) -> list[Case]:
    """Uneven batches, bf16, dropout, clipping, mixed shapes within a step, tuples, other norms, wires and cuts."""
    four = evenly(4 * data_parallel)
    cases = []
    for strategy in strategies_for(num_stages):
        plain = Case(strategy, num_stages, four, data_parallel)
        other = replace(plain, recompute=Recompute(2), channels_last=True)
        cases += [replace(way, batches=UNEVEN, then_infer=True) for way in (plain, other)]
        cases += [replace(plain, batches=UNEVEN, then_infer=True, strict=True), replace(other, strict=True)]
        cases += [replace(way, precision="bf16") for way in (plain, other)]
        cases += [replace(way, network=odd_norms_network) for way in (plain, other)]
        cases += [replace(plain, network=dropout_resnet), replace(other, network=dropout_resnet, strict=True)]
        cases += [replace(plain, network=group_norm_resnet), replace(other, mixed_shapes=True, clip_norm=0.5)]
        if num_stages <= 3:
            cases += [replace(way, network=tuple_network, batches=UNEVEN) for way in (plain, other)]
    costs = [tuple(9.0 if block == big else 1.0 for block in range(5)) for big in range(5)]
    return cases + [Case("master", num_stages, four, data_parallel, channels_last=True, costs=one) for one in costs]
