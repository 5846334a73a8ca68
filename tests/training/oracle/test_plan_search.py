"""The search finds what trying everything finds, and nothing that does not fit."""

import random
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.engine.schedule_requests import build, requests
from training.engine.partition import BlockCost, BlockTimes, stage_ranges
from training.engine.recompute import Recompute
from training.engine.strategies import STRATEGIES, build_schedule, place
from training.oracle.search.candidates import Request
from training.oracle.search.memory import RankMemory
from training.oracle.search.search import least_s, search
from training.oracle.simulation.costs import Costs, StageCost, stage_cost, stage_costs
from training.oracle.simulation.links import Link, pairs
from training.oracle.simulation.simulate import simulate
from training.parallel.division import WHOLE, Division, Swaps

LARGE = [(5, 8, 2), (6, 7, 3), (7, 8, 4)]
NETWORK = pairs(Link("wire", 0.05, 0.002))


def price(stages, schedule, placement):
    return Costs(stages, NETWORK)


def blocks(seed, number):
    """Blocks of uneven cost, whose normalisations keep less and take some time."""
    draw = random.Random(seed)
    return [
        BlockCost(
            flops=1,
            saved_bytes=draw.randint(20, 100),
            input_bytes=draw.randint(5, 20),
            norm_bytes=draw.randint(10, 20),
            gradient_bytes=draw.randint(5, 20),
            weight_bytes=draw.randint(1, 9),
            times=BlockTimes(
                draw.randint(1, 9),
                draw.randint(2, 15),
                norm_s=draw.randint(1, 3) / 2,
                offload_s=draw.randint(2, 5) / 2,
                alone=draw.choice([0.75, 1.0]),
            ),
        )
        for _ in range(number)
    ]


def everything(request):
    """(seconds, bytes) of every plan there is."""
    for name, num_stages, divisions in shapes(request):
        row, parts = STRATEGIES[name], [division.parts for division in divisions]
        groups, rest = divmod(request.num_ranks, sum(parts))
        if rest or row.refusal(num_stages) or request.num_microbatches % groups:
            continue
        schedule = build_schedule(
            name, num_stages=num_stages, num_microbatches=request.num_microbatches // groups, parts=parts
        )
        placement = place(name, num_stages=num_stages, data_parallel=groups, parts=parts)
        memory = RankMemory(schedule, placement, request.optimizer_slots)
        for stages in every_stages(request, divisions):
            end_s = simulate(schedule, request.price(stages, schedule, placement)).end_s
            assert end_s >= least_s(request, row, num_stages, groups, divisions) - 1e-9
            yield end_s, memory.most_bytes(stages)


def shapes(request):
    """(strategy, stages, their divisions), with parts in all stages alike, in none, or in the first."""
    for name, num_stages in product(STRATEGIES, range(1, len(request.blocks) + 1)):
        if (num_stages == 1) != (name == "single"):
            continue
        for first, others in product((WHOLE, *request.divided), repeat=2):
            divisions = (first, *(others,) * (num_stages - 1))
            is_even = divisions == divisions[::-1] or not STRATEGIES[name].is_mirrored
            if is_even and others in (first, WHOLE) and (num_stages > 1 or others == first):
                yield name, num_stages, divisions


def every_stages(request, divisions):
    """Stages under all cuts and policies."""
    number, costs = len(request.blocks), {WHOLE: request.blocks, **request.divided}
    rests = ("keep", "offload") if set(divisions) != {WHOLE} else ("keep", "norm", "offload")
    for cuts in combinations(range(1, number), len(divisions) - 1):
        ranges = stage_ranges(cuts, number)
        for recompute in policies([len(r) for r in ranges], rests):
            yield [
                stage_cost(
                    [costs[division][index] for index in own],
                    recompute.segments(stage, len(own)),
                    is_first=stage == 0,
                    is_last=stage == len(divisions) - 1,
                    division=division,
                    taken=request.blocks[own.start],
                )
                for stage, (own, division) in enumerate(zip(ranges, divisions, strict=True))
            ]


def policies(lengths, rests):
    for rest in rests:
        yield Recompute(rest=rest)
        for every in range(1, sum(lengths) + 1) if rest != "offload" else ():
            yield Recompute(every, rest=rest)
            for prefix in product(*(sorted({*range(0, length, every), length}) for length in lengths)):
                yield Recompute(every, prefix, rest)


@pytest.mark.parametrize(
    ("seed", "number", "num_ranks"),
    [(1, 5, 2), (2, 4, 4), (3, 6, 2), (4, 5, 4), *(pytest.param(*case, marks=pytest.mark.prove) for case in LARGE)],
)
def test_the_fastest_plan_under_any_cap_is_the_one_that_trying_everything_finds(seed, number, num_ranks):
    request = Request(blocks(seed, number), num_ranks, num_microbatches=4, price=price)
    every = list(everything(request))
    needs = sorted({needed for _, needed in every})

    for cap in (needs[0] - 1, needs[0], needs[len(needs) // 8], needs[len(needs) // 3], needs[-1]):
        expected = min((seconds for seconds, needed in every if needed <= cap), default=None)
        found = search(replace(request, cap_bytes=cap)).candidates
        fastest_s = min((each.step_s for each in found), default=None)
        assert fastest_s == (None if expected is None else pytest.approx(expected)), cap
        assert all(each.rank_bytes <= cap for each in found)


@pytest.mark.parametrize(("seed", "number", "num_ranks"), [(9, 4, 2), (10, 4, 3), (11, 3, 4)])
def test_the_fastest_plan_in_parts_is_the_one_that_trying_everything_finds(seed, number, num_ranks):
    """Fewer micro-batches than ranks: parts are worth their messages."""
    swaps = Swaps(1, {(0, 1): 3, (1, 0): 3})
    halves = [
        replace(
            block,
            saved_bytes=block.saved_bytes // 2 + 2,
            norm_bytes=block.saved_bytes // 2 + 2,
            times=BlockTimes(block.times.forward_s / 2, block.times.backward_s / 2 + 0.2, alone=block.times.alone),
            forward_swaps=swaps,
            backward_swaps=swaps,
        )
        for block in blocks(seed, number)
    ]
    divided = {Division(2, "rows"): halves}
    request = Request(blocks(seed, number), num_ranks, num_microbatches=num_ranks // 2, price=price, divided=divided)
    every = list(everything(request))
    needs = sorted({needed for _, needed in every})

    in_parts = 0
    for cap in (needs[0], needs[len(needs) // 8], needs[-1]):
        found = search(replace(request, cap_bytes=cap)).candidates
        expected = min(seconds for seconds, needed in every if needed <= cap)
        assert min(each.step_s for each in found) == pytest.approx(expected), cap
        assert all(each.rank_bytes <= cap for each in found)
        in_parts += bool(found[0].divisions)
    assert in_parts


def test_of_plans_that_are_as_good_as_equally_fast_the_one_that_needs_least_memory_stands_first():
    equal = [replace(block, weight_bytes=100, times=BlockTimes(100.0, 100.0)) for block in blocks(1, 4)]
    request = Request(equal, 2, num_microbatches=4, price=lambda stages, *_: Costs(stages))
    found = search(request).candidates
    limit_s = 1.01 * min(each.step_s for each in found)
    first = [each for each in found if each.step_s <= limit_s]
    rest = found[len(first) :]

    assert len({each.rank_bytes for each in first}) > 1
    assert found[: len(first)] == tuple(sorted(first, key=lambda each: (each.rank_bytes, each.step_s)))
    assert [each.step_s for each in rest] == sorted(each.step_s for each in rest)
    assert all(each.step_s > limit_s for each in rest)


@given(requests())
@settings(deadline=None)
def test_the_memory_of_a_rank_is_that_of_the_played_schedule(request):
    schedule = build(request)
    draw = random.Random(str(request))
    stages = [
        StageCost(draw.random(), draw.random(), draw.randint(0, 99), draw.randint(0, 99))
        for _ in range(schedule.num_stages)
    ]
    memory = RankMemory(schedule, schedule.placement, 1)
    played = simulate(schedule, Costs(stages)).peak_bytes

    assert tuple(memory.activation_bytes(rank, stages) for rank in range(len(schedule.ranks))) == played


def test_weights_their_gradients_and_the_optimizer_count():
    """master on two ranks of one group: both stages on each; N = 4: two micro-batches of each stage on a rank."""
    schedule = build_schedule("master", num_stages=2, num_microbatches=4)
    memory = RankMemory(schedule, place("master", num_stages=2, data_parallel=3), optimizer_slots=3)
    stages = [StageCost(1, 1, weight_bytes=600), StageCost(1, 1, weight_bytes=60)]

    # Weights, two sums of gradients at a time, and three slots of a sixth: six ranks hold each stage.
    assert memory.state_bytes(0, stages) == memory.state_bytes(1, stages) == 660 * 3 + 3 * 110


def test_what_has_no_plan_says_why():
    request = Request(blocks(5, 6), 4, num_microbatches=6, price=price, cap_bytes=150)
    reasons = {(e.strategy, e.num_stages): e.reason for e in search(request).excluded}

    assert reasons["single", 1] == "6 micro-batches do not divide among 4 groups"
    assert reasons["gpipe", 4].startswith("needs ")
    assert reasons["gpipe", 4].endswith("of 1.5e-07 GB")


def test_stages_win_where_no_rank_holds_a_whole_network():
    """Data parallelism, which has no idle ranks, wins as long as it fits."""
    request = Request(blocks(6, 8), 4, num_microbatches=8, price=price)
    (no_room,) = search(replace(request, strategies=("single",), cap_bytes=0)).excluded
    least = 1e9 * float(no_room.reason.split()[1])
    scarce = search(replace(request, cap_bytes=0.95 * least))

    assert search(request).candidates[0].strategy == "single"
    assert scarce.candidates[0].num_stages > 1
    assert ("single", 1) in {(each.strategy, each.num_stages) for each in scarce.excluded}


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_larger_networks_are_cut_so_that_moving_one_cut_does_not_help(seed):
    """Sixteen blocks on four ranks are more than are all tried."""
    request = Request(blocks(seed, 16), 4, num_microbatches=4, price=price, strategies=("1f1b",))
    best = next(each for each in search(request).candidates if each.num_stages == 4)
    schedule = build_schedule("1f1b", num_stages=4, num_microbatches=4)
    placement = place("1f1b", num_stages=4, data_parallel=1)
    for index, step in product(range(3), (-1, 1)):
        cuts = list(best.cuts)
        cuts[index] += step
        if cuts == sorted({*cuts} - {0, 16}) and len(cuts) == 3:
            stages = stage_costs(request.blocks, cuts, best.recompute)
            assert simulate(schedule, price(stages, schedule, placement)).end_s >= best.step_s - 1e-9
