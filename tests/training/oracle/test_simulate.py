"""The simulator agrees with the closed forms of the literature, and with the activations a schedule keeps alive."""

from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.engine.schedule_requests import build, requests
from training.engine.partition import BlockCost, BlockTimes
from training.engine.plan import make_plan
from training.engine.recompute import Recompute
from training.engine.schedule import Op, ScheduleError
from training.engine.strategies import STRATEGIES, build_schedule
from training.oracle.simulation.costs import Costs, StageCost, plan_stage_costs, stage_costs
from training.oracle.simulation.links import Link, pairs
from training.oracle.simulation.simulate import simulate
from training.parallel.division import WHOLE, Division, Swaps

times = st.integers(1, 100)
stages = st.integers(2, 8)
even = st.integers(1, 4).map(lambda half: 2 * half)


def simulated(strategy, num_stages, num_microbatches, forward, backward, **others):
    schedule = build({"strategy": strategy, "num_stages": num_stages, "num_microbatches": num_microbatches})
    return simulate(schedule, Costs([StageCost(forward, backward)] * num_stages, **others))


@given(stages, st.integers(1, 16), times, times)
def test_mp_basic_takes_the_time_of_all_stages_one_after_the_other(s, n, f, b):
    assert simulated("mp-basic", s, n, f, b).end_s == n * s * (f + b)


@given(stages, st.integers(1, 16), times, times)
def test_master_takes_the_time_of_its_closed_form(s, n, f, b):
    """T = S f + N S b + (N - 1) f if a backward takes no less than a forward, also for odd N."""
    f, b = min(f, b), max(f, b)
    timeline = simulated("master", s, n, f, b)

    assert timeline.end_s == s * f + n * s * b + (n - 1) * f
    assert timeline.bubble == pytest.approx(1 - n * (f + b) / timeline.end_s)


@given(stages, st.integers(1, 16), times, times)
def test_master_waits_for_the_slower_of_the_two_passes_at_every_stage(s, n, f, b):
    """The closed form for any f and b: if forwards are slower, the wait is for the hidden forward."""
    between = (s - 1) * max(f, b) + f + b

    assert simulated("master", s, n, f, b).end_s == s * (f + b) + (n - 1) * between


@given(st.sampled_from(list(STRATEGIES.values())), stages, st.integers(1, 16), times, times)
def test_every_strategy_takes_the_time_that_its_row_promises(row, s, n, f, b):
    """Check every row with a closed form: each has one for some numbers, and for f = b if N is a multiple of S."""
    s = s if row.refusal(s) is None else next(k for k in (2 * s, 1) if row.refusal(k) is None)
    assert row.closed_form(s, s, f, f) is not None
    for microbatches, backward in ((n, b), (n * s, f)):
        promised = row.closed_form(s, microbatches, f, backward)
        assert promised is None or simulated(row.name, s, microbatches, f, backward).end_s == promised


@given(stages, even, times, times)
def test_master_gains_over_mp_basic_but_less_than_one_hidden_forward(s, n, f, b):
    speed_up = simulated("mp-basic", s, n, f, b).end_s / simulated("master", s, n, f, b).end_s

    assert 1 < speed_up < (f + b) / b


def test_the_speed_up_of_two_microbatches_on_four_stages_is_that_of_the_reference():
    """MAST, S = 4, b = 2 f: 1.143."""
    assert simulated("mp-basic", 4, 2, 1, 2).end_s / simulated("master", 4, 2, 1, 2).end_s == pytest.approx(8 / 7)


@given(st.sampled_from(["gpipe", "1f1b"]), stages, st.integers(1, 16), times, times)
def test_gpipe_and_1f1b_take_the_time_of_their_closed_form(strategy, s, n, f, b):
    timeline = simulated(strategy, s, n, f, b)

    assert timeline.end_s == (n + s - 1) * (f + b)
    assert timeline.bubble == pytest.approx((s - 1) / (n + s - 1))


@given(even, st.integers(1, 4), times)
def test_chimera_takes_the_time_of_its_closed_form(s, units, f):
    """(2 N + S - 2) f for b = f and N a multiple of S; its bubble is (S - 2) / (2 N + S - 2) (Li & Hoefler, SC21)."""
    n = units * s
    timeline = simulated("chimera", s, n, f, f)

    assert timeline.end_s == (2 * n + s - 2) * f
    assert timeline.bubble == pytest.approx((s - 2) / (2 * n + s - 2))


@given(even, times)
def test_chimera_with_a_backward_of_two_forwards_has_the_bubble_of_the_reference(s, f):
    """(S - 2) / (1.5 N + S - 2) for b = 2 f and N = S: 33 % for 8 stages."""
    assert simulated("chimera", s, s, f, 2 * f).bubble == pytest.approx((s - 2) / (1.5 * s + s - 2))


@pytest.mark.parametrize(
    ("strategy", "percent"), [("master", 83), ("gpipe", 47), ("1f1b", 47), ("chimera", 33), ("mp-basic", 87.5)]
)
def test_master_is_no_scheme_for_speed(strategy, percent):
    """Eight stages, eight micro-batches, b = 2 f: the ranks' idle time in per cent matches the reference."""
    assert 100 * simulated(strategy, 8, 8, 1, 2).bubble == pytest.approx(percent, abs=0.7)


@given(requests())
def test_no_step_is_shorter_than_its_busiest_rank_or_longer_than_all_work_in_a_row(request):
    schedule = build(request)
    costs = [StageCost(1.0 + stage, 2.0 * (1 + stage)) for stage in range(schedule.num_stages)]
    timeline = simulate(schedule, Costs(costs))

    busy = [sum(span.end_s - span.start_s for span in spans) for spans in timeline.ranks]
    assert max(busy) <= timeline.end_s <= sum(busy)
    assert 0 <= timeline.bubble < 1
    for spans in timeline.ranks:
        assert all(before.end_s <= after.start_s for before, after in pairwise(spans))


@given(requests())
def test_no_action_starts_before_what_it_takes_has_arrived(request):
    schedule = build(request)
    timeline = simulate(schedule, with_messages(schedule.num_stages, 3.0, 5.0, 1, 0.5, 0.0))
    spans = {span.action: span for row in timeline.ranks for span in row}

    for span in spans.values():
        for source in schedule.sources(span.action):
            delay = 0.5 if schedule.rank_of(source) != schedule.rank_of(span.action) else 0.0
            assert spans[source].end_s + delay <= span.start_s
    for sent in timeline.messages:
        giver, taker = sent.message
        assert spans[giver].end_s <= sent.start_s <= sent.end_s <= spans[taker].start_s


def with_messages(num_stages, forward, backward, num_bytes, alpha, beta):
    stage = StageCost(forward, backward, input_bytes=num_bytes, gradient_bytes=num_bytes)
    return Costs([stage] * num_stages, pairs(Link("wire", alpha, beta)))


@given(stages, st.integers(1, 16), times, times, st.integers(0, 50), st.integers(1, 50), st.integers(1, 9))
def test_mp_basic_waits_for_every_message_down_and_up(s, n, f, b, alpha, m, beta):
    schedule = build({"strategy": "mp-basic", "num_stages": s, "num_microbatches": n})

    expected = n * (s * (f + b) + 2 * (s - 1) * (alpha + m * beta))
    assert simulate(schedule, with_messages(s, f, b, m, alpha, beta)).end_s == pytest.approx(expected)


@given(stages, st.integers(1, 16), times, times, st.integers(0, 50), st.integers(1, 50), st.integers(1, 9))
def test_gpipe_takes_the_time_of_the_pipeline_formula_of_paradl(s, n, f, b, alpha, m, beta):
    """(N + S - 1) (f + b) + 2 (N + S - 2) (α + m β): a rank takes its next input between two actions."""
    schedule = build({"strategy": "gpipe", "num_stages": s, "num_microbatches": n})

    expected = (n + s - 1) * (f + b) + 2 * (n + s - 2) * (alpha + m * beta)
    assert simulate(schedule, with_messages(s, f, b, m, alpha, beta)).end_s == pytest.approx(expected)


def test_boundaries_have_their_own_sizes_in_each_direction():
    """mp-basic on three stages: 10 and 20 bytes down, 1 and 2 up."""
    costs = [StageCost(1, 1), StageCost(1, 1, input_bytes=10, gradient_bytes=1), StageCost(1, 1, 0, 0, 20, 2)]
    schedule = build({"strategy": "mp-basic", "num_stages": 3, "num_microbatches": 1})
    timeline = simulate(schedule, Costs(costs, pairs(Link("wire", beta_s_per_byte=1.0))))

    assert [sent.end_s - sent.start_s for sent in timeline.messages] == [10, 20, 2, 1]
    assert timeline.end_s == 6 + 33


def test_messages_that_share_a_link_share_its_bandwidth():
    """Two replicas of mp-basic on one wire, and on a wire each."""
    schedule = build({"strategy": "mp-basic", "num_stages": 2, "num_microbatches": 2, "data_parallel": 2})
    stages = [StageCost(1, 2), StageCost(1, 2, input_bytes=30, gradient_bytes=20)]
    shared = simulate(schedule, Costs(stages, lambda sender, receiver: (Link("the wire", 0.5, 0.1),)))
    own = simulate(schedule, Costs(stages, pairs(Link("wire", 0.5, 0.1))))

    assert own.end_s == pytest.approx(6 + 0.5 + 3 + 0.5 + 2)
    assert shared.end_s == pytest.approx(6 + 0.5 + 6 + 0.5 + 4)


def test_the_sums_and_the_update_take_their_time_and_their_messages():
    """Two groups of one rank: half the gradients to the other, the sum, the update, half the weights to the other."""
    schedule = build({"strategy": "single", "num_stages": 1, "num_microbatches": 4, "data_parallel": 2})
    costs = Costs(
        [StageCost(1, 2, weight_bytes=80, reduce_s=0.25, step_s=0.5)], pairs(Link("wire", 0.125, 0.1)), agree_s=7
    )

    halves = 2 * (0.125 + 40 * 0.1)
    assert simulate(schedule, costs).end_s == pytest.approx(2 * (1 + 2) + 0.25 + 7 + 0.5 + halves)


def test_a_number_of_microbatches_that_is_no_power_of_two_sends_more_gradients():
    """Of 2 · 3 micro-batches each rank has two sums to give, since the tree's nodes are powers of two."""
    costs = Costs([StageCost(0, 0, weight_bytes=80)], pairs(Link("wire", 0.0, 0.1)))
    request = {"strategy": "single", "num_stages": 1, "data_parallel": 2}
    ends = [simulate(build(request, num_microbatches=number), costs).end_s for number in (8, 6)]

    assert ends == pytest.approx([4 + 4, 8 + 4])


def test_a_slower_rank_holds_up_the_others():
    schedule = build({"strategy": "gpipe", "num_stages": 2, "num_microbatches": 8})

    assert simulate(schedule, Costs([StageCost(1, 2)] * 2, slowness=[1.0, 1.5])).end_s == 8 * 1.5 * 3 + 1 + 2


def test_stages_out_of_balance_cost_master_its_gain():
    """Four stages, four micro-batches, b = 2 f: evenly cut 1.23 times faster than mp-basic (reference A2)."""
    schedule = build({"strategy": "master", "num_stages": 4, "num_microbatches": 4})
    plain = build({"strategy": "mp-basic", "num_stages": 4, "num_microbatches": 4})
    speed_ups = []
    for flops in ([432.25] * 4, [199, 402, 545, 623], [146, 158, 545, 919]):
        costs = [StageCost(f, 2 * f) for f in flops]
        speed_ups.append(simulate(plain, Costs(costs)).end_s / simulate(schedule, Costs(costs)).end_s)

    assert speed_ups == pytest.approx([1.231, 1.164, 1.092], abs=0.001)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("mp-basic", [100, 100, 100, 100]),
        ("master", [100, 100, 100, 100]),
        ("gpipe", [800, 800, 800, 800]),
        ("1f1b", [400, 300, 200, 100]),
        ("chimera", [300, 400, 400, 300]),
    ],
)
def test_kept_bytes_are_those_of_the_live_microbatches(strategy, expected):
    schedule = build({"strategy": strategy, "num_stages": 4, "num_microbatches": 8})

    assert simulate(schedule, Costs([StageCost(1, 2, kept_bytes=100)] * 4)).peak_bytes == tuple(expected)


def test_a_rank_of_master_keeps_the_larger_of_its_two_stages_and_not_their_sum():
    schedule = build({"strategy": "master", "num_stages": 2, "num_microbatches": 8})

    assert (
        simulate(schedule, Costs([StageCost(1, 2, kept_bytes=70), StageCost(1, 2, kept_bytes=100)])).peak_bytes
        == (100,) * 2
    )


def test_what_backward_recomputes_comes_on_top():
    schedule = build({"strategy": "gpipe", "num_stages": 2, "num_microbatches": 4})
    costs = [StageCost(1, 3, kept_bytes=10, recomputed_bytes=100)] * 2

    assert simulate(schedule, Costs(costs)).peak_bytes == (140, 140)


@given(requests())
def test_every_activation_is_let_go_of_by_the_end(request):
    schedule = build(request)
    timeline = simulate(
        schedule, Costs([StageCost(1, 2, kept_bytes=7 + stage) for stage in range(schedule.num_stages)])
    )

    assert [spans[-1].live_bytes for spans in timeline.ranks] == [0] * len(schedule.ranks)


def test_recomputation_adds_one_forward_and_keeps_only_inputs():
    blocks = [BlockCost(flops=10 * (k + 1), saved_bytes=100 * (k + 1), input_bytes=k + 1) for k in range(5)]

    plain = stage_costs(blocks, (2,), Recompute())
    every = stage_costs(blocks, (2,), Recompute(2))
    part = stage_costs(blocks, (2,), Recompute(1, prefix=(1, 0)))

    assert plain == [StageCost(30, 60, 300, 0), StageCost(120, 240, 1200, 0, input_bytes=3)]
    # Backward runs from the end: everything after a segment has been released when the segment is recomputed.
    # Blocks 2 and 3 are one segment of the last stage, block 4 is another, which is not repeated if kept at once.
    last = StageCost(120, 360, 3 + 5, 3 + 700 - (3 + 5), input_bytes=3, at_once_s=50)
    assert every == [StageCost(30, 90, 1, 300), last]
    assert part == [StageCost(30, 70, 1 + 200, 0), StageCost(120, 240, 1200, 0, input_bytes=3)]


def test_a_backward_right_after_its_forward_repeats_one_segment_less():
    """mp-basic's last stage goes up as soon as it is down; gpipe's does so for a single micro-batch only."""
    costs = Costs([StageCost(1, 3), StageCost(1, 3, at_once_s=0.5)])
    ends = [
        simulate(build({"strategy": strategy, "num_stages": 2, "num_microbatches": n}), costs).end_s
        for strategy, n in (("mp-basic", 4), ("gpipe", 4), ("gpipe", 1))
    ]

    assert ends == [4 * (8 - 0.5), 5 * 4, 8 - 0.5]


def test_measured_seconds_replace_operations():
    """Also those of each policy: blocks that repeat, those that normalise again, and those kept in host memory."""
    block = BlockCost(10, 0, 0, times=BlockTimes(1.0, 1.5, norm_s=0.25, offload_s=0.125))
    policies = (Recompute(), Recompute(1), Recompute(rest="norm"), Recompute(rest="offload"))
    both = [[(c.forward_s, c.backward_s) for c in stage_costs([block] * 4, (2,), policy)] for policy in policies]

    assert both == [[(2, 3)] * 2, [(2, 5)] * 2, [(2, 3.5)] * 2, [(2, 3.25)] * 2]


def test_a_stage_alone_is_as_much_faster_as_its_blocks():
    blocks = [
        BlockCost(1, 0, 0, times=BlockTimes(1.0, 2.0, alone=0.5)),
        BlockCost(1, 0, 0, times=BlockTimes(3.0, 6.0, alone=0.75)),
    ]

    assert [cost.alone for cost in stage_costs(blocks, (), Recompute())] == [(3 * 0.5 + 9 * 0.75) / 12]
    assert [cost.alone for cost in stage_costs(blocks, (1,), Recompute())] == [0.5, 0.75]


@given(stages, st.integers(1, 16), times, times)
def test_one_rank_at_a_time_takes_what_it_takes_alone(s, n, f, b):
    """In mp-basic all others always wait; the closed form of others holds where all ranks compute."""
    schedule = build({"strategy": "mp-basic", "num_stages": s, "num_microbatches": n})
    timeline = simulate(schedule, Costs([StageCost(f, b, alone=0.75)] * s))

    assert timeline.end_s == pytest.approx(0.75 * n * s * (f + b))


def test_ranks_that_compute_at_once_slow_each_other_down():
    """A pipeline of two: one rank alone at first and in the end, both between."""
    schedule = build({"strategy": "gpipe", "num_stages": 2, "num_microbatches": 3})
    timeline = simulate(schedule, Costs([StageCost(4.0, 4.0, alone=0.75)] * 2))

    # Forward: 3 alone, 2 x 4 beside each other, 3 alone, of which the second rank goes on with its first backward.
    assert timeline.end_s == pytest.approx(2 * (3 + 2 * 4 + 3))


def test_messages_that_both_sides_come_to_at_the_same_time_take_longer():
    """chimera's two replicas are mirror images and exchange at once; mp-basic's ranks wait for each other."""
    mirrored, one_after_the_other = (
        build({"strategy": strategy, "num_stages": 2, "num_microbatches": 2}) for strategy in ("chimera", "mp-basic")
    )
    costs = Costs([StageCost(4.0, 4.0)] * 2, meeting_s=0.5)

    # Two exchanges: of activations, and of their gradients.
    assert simulate(mirrored, costs).end_s == 4 * 4.0 + 2 * 0.5
    assert simulate(one_after_the_other, costs).end_s == 8 * 4.0


def test_other_policies_cost_no_forward_and_keep_what_they_say():
    blocks = [BlockCost(flops=10, saved_bytes=100 * (k + 1), input_bytes=k + 1, norm_bytes=7 * k) for k in range(4)]

    norm = stage_costs(blocks, (2,), Recompute(rest="norm"))
    assert norm == [StageCost(20, 40, 7, 0), StageCost(20, 40, 35, 0, input_bytes=3)]
    # In host memory except for the input; in backward one block and the one before it are loaded back.
    away = stage_costs(blocks, (2,), Recompute(rest="offload"))
    assert away == [StageCost(20, 40, 1, 300), StageCost(20, 40, 3, 700, input_bytes=3)]


def test_times_come_from_the_operations_per_second_of_a_rank():
    blocks = [BlockCost(flops=300, saved_bytes=0, input_bytes=0)]

    assert stage_costs(blocks, (), Recompute(), flops_per_s=100.0) == [StageCost(3.0, 6.0, 0, 0)]


def test_groups_do_not_wait_for_each_other_before_their_sums():
    alone = simulated("master", 3, 4, 2, 3)
    groups = build({"strategy": "master", "num_stages": 3, "num_microbatches": 12, "data_parallel": 3})

    assert simulate(groups, Costs([StageCost(2, 3)] * 3)).end_s == alone.end_s


def test_forward_only_is_one_wave():
    schedule = build({"strategy": "gpipe", "num_stages": 4, "num_microbatches": 6}, forward_only=True)

    assert simulate(schedule, Costs([StageCost(1, 2)] * 4)).end_s == 6 + 3


@given(st.integers(1, 4), st.integers(1, 4))
def test_forward_only_in_two_directions_keeps_all_ranks_at_work(half, units):
    """Two waves of N/2 that meet on alternate clocks."""
    num_stages, num_microbatches = 2 * half, 2 * units
    schedule = build(
        {"strategy": "chimera", "num_stages": num_stages, "num_microbatches": num_microbatches}, forward_only=True
    )

    end = simulate(schedule, Costs([StageCost(1, 2)] * num_stages)).end_s
    assert end == 2 * (units - 1) + num_stages


def test_a_schedule_that_stalls_has_no_time():
    schedule = build({"strategy": "mp-basic", "num_stages": 2, "num_microbatches": 2})
    ranks = [list(actions) for actions in schedule.ranks]
    ranks[1].sort(key=lambda action: -(action.microbatch or 0) if action.op in (Op.F, Op.B) else 1)
    stalled = replace(schedule, ranks=tuple(map(tuple, ranks)))

    with pytest.raises(ScheduleError, match="stalls"):
        simulate(stalled, Costs([StageCost(1, 2)] * 2))


@given(st.integers(2, 4), st.integers(1, 8), times, times, st.integers(1, 9))
def test_a_stage_in_parts_takes_its_time_and_that_of_its_messages(parts, n, f, b, alpha):
    """One message of 3 bytes in forward, two of 5 in all in backward, between each two parts."""
    forward, backward = (
        Swaps(count, dict.fromkeys(permutations(range(parts), 2), size)) for count, size in ((1, 3), (2, 5))
    )
    swaps = {"forward_swaps": forward, "backward_swaps": backward, "backward_at_once_swaps": backward}
    cost = StageCost(f, b, division=Division(parts), **swaps)
    schedule = build_schedule("single", num_stages=1, num_microbatches=n, parts=(parts,))
    network = pairs(Link("wire", alpha, 0.5))

    assert len(schedule.ranks) == parts
    expected = n * (f + b + 3 * alpha + 4)
    assert simulate(schedule, Costs([cost], network)).end_s == pytest.approx(expected)
    assert simulate(schedule, Costs([cost], network, meeting_s=2)).end_s == pytest.approx(expected + 6 * n)


def test_parts_wait_for_the_slowest_of_them():
    schedule = build_schedule("single", num_stages=1, num_microbatches=3, parts=(2,))
    cost = StageCost(1, 2, division=Division(2))

    timeline = simulate(schedule, Costs([cost], slowness=[1.0, 1.5]))

    assert timeline.end_s == 3 * 1.5 * 3
    starts = [[span.start_s for span in row if span.action.op in (Op.F, Op.B)] for row in timeline.ranks]
    assert starts[0] == starts[1] == [0, 1.5, 4.5, 6, 9, 10.5]


@pytest.mark.parametrize(
    ("first", "second", "down", "up"),
    [
        (Division(2), Division(3), [(0, 0, 20), (0, 1, 10), (1, 1, 10), (1, 2, 20)], 60),
        (Division(1), Division(3), [(0, 0, 20), (0, 1, 20), (0, 2, 20)], 60),
        (Division(3), Division(1), [(0, 0, 20), (1, 0, 20), (2, 0, 20)], 60),
        (Division(2), Division(2), [(0, 0, 30), (1, 1, 30)], 60),
        (Division(2, "filter"), Division(2, "filter"), [(0, 0, 60), (1, 1, 60)], 120),
        (Division(2, "filter"), Division(1), [(0, 0, 60)], 120),
    ],
)
def test_what_passes_between_stages_in_parts_is_what_both_hold(first, second, down, up):
    """Of 60 bytes forward; back as many for each that gives a summand of a whole tensor."""
    stages = [StageCost(1, 1, division=first), StageCost(1, 1, 0, 0, 60, 60, division=second)]
    schedule = build_schedule("gpipe", num_stages=2, num_microbatches=1, parts=(first.parts, second.parts))
    costs = Costs(stages)
    sent = [(*message, costs.message_bytes(*message)) for message in _messages(schedule)]

    passed = [(giver.part, taker.part, round(size)) for giver, taker, size in sent if giver.op is Op.F and size]
    assert sorted(passed) == down
    assert sum(size for giver, _, size in sent if giver.op is Op.B) == pytest.approx(up)


def _messages(schedule):
    actions = [action for row in schedule.ranks for action in row]
    return [(action, target) for action in actions for target in schedule.targets(action)]


def test_recomputation_repeats_the_messages_of_forward_but_not_where_backward_follows_at_once():
    swaps = Swaps(1, {(0, 1): 8, (1, 0): 8})
    block = BlockCost(1, 4, 1, times=BlockTimes(1, 2), forward_swaps=swaps, backward_swaps=swaps)
    plan = make_plan("single", costs=[1, 1, 1], parts=(2,), recompute=Recompute(2))
    (cost,) = plan_stage_costs(plan, {WHOLE: [block] * 3, Division(2): [block] * 3})

    assert cost.forward_swaps.count == 3
    assert cost.backward_swaps.count == 3 + 3
    assert cost.backward_at_once_swaps.count == 3 + 2
    assert cost.backward_at_once_swaps.num_bytes == {(0, 1): 40, (1, 0): 40}


def test_virtual_parts_take_the_time_of_all_parts_and_send_nothing():
    swaps = Swaps(1, {(0, 1): 8, (1, 0): 8})
    block = BlockCost(1, 4, 1, times=BlockTimes(1, 2), forward_swaps=swaps, backward_swaps=swaps)
    costs = {WHOLE: [block], Division(2): [block]}
    virtual = make_plan("single", costs=[1], num_microbatches=3, parts=(2,), virtual_parts=True)
    stages = plan_stage_costs(virtual, costs)

    assert stages[0].kept_bytes == 8
    assert simulate(virtual.schedule(3), Costs(stages, pairs(Link("wire", 5.0, 5.0)))).end_s == 2 * 3 * (1 + 2)
