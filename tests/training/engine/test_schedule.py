import dataclasses
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.engine.schedule import (
    Action,
    Op,
    Schedule,
    ScheduleError,
    build_schedule,
    check_schedule,
    draw,
    rank_of,
)


@st.composite
def requests(draw_value):
    """(strategy, num_stages, num_microbatches) that fit each other."""
    strategy = draw_value(st.sampled_from(["single", "mp-basic", "mast", "master"]))
    num_stages = 1 if strategy == "single" else draw_value(st.integers(2, 8))
    half = draw_value(st.integers(1, 4))
    num_microbatches = {"mast": 2, "master": 2 * half}.get(strategy) or draw_value(st.integers(1, 8))
    return strategy, num_stages, num_microbatches


def build(request) -> Schedule:
    strategy, num_stages, num_microbatches = request
    return build_schedule(strategy, num_stages=num_stages, num_microbatches=num_microbatches)


def with_rank(schedule: Schedule, rank: int, actions: list[Action]) -> Schedule:
    ranks = list(schedule.ranks)
    ranks[rank] = tuple(actions)
    return dataclasses.replace(schedule, ranks=tuple(ranks))


def test_mast_sends_the_mirrored_forward_behind_the_first_backward():
    schedule = build_schedule("mast", num_stages=3, num_microbatches=2)

    assert draw(schedule) == dedent("""\
        clock  rank 0  rank 1  rank 2
            0  F0      .       .
            1  .       F0      .
            2  .       .       F0
            3  .       .       B0
            4  .       B0      F1'
            5  B0      F1'     .
            6  F1'     .       .
            7  B1'     .       .
            8  .       B1'     .
            9  .       R1'     B1'
           10  .       R1      R0'
           11  R0      S1      .
           12  S0      S1'     .
           13  R2'     .       S0'
           14  .       .       R2
           15  .       .       S2
           16  S2'     .       .""")


def test_mp_basic_has_one_rank_at_work_at_a_time():
    schedule = build_schedule("mp-basic", num_stages=2, num_microbatches=2)

    assert draw(schedule) == dedent("""\
        clock  rank 0  rank 1
            0  F0      .
            1  .       F0
            2  .       B0
            3  B0      .
            4  F1      .
            5  .       F1
            6  .       B1
            7  B1      S1
            8  S0      .""")


@given(requests())
def test_every_schedule_passes_its_check(request):
    check_schedule(build(request))


@given(requests())
def test_every_microbatch_passes_every_stage_once_each_way(request):
    schedule = build(request)
    actions = [action for rank in schedule.ranks for action in rank]

    for op in (Op.F, Op.B):
        seen = sorted((action.stage, action.microbatch) for action in actions if action.op is op)
        assert seen == [(s, k) for s in range(schedule.num_stages) for k in range(schedule.num_microbatches)]


@given(requests())
def test_each_replica_owns_a_contiguous_range_of_microbatches(request):
    schedule = build(request)
    owners = {a.microbatch: a.replica for rank in schedule.ranks for a in rank if a.microbatch is not None}

    assert [owners[k] for k in sorted(owners)] == sorted(owners.values())
    assert schedule.num_replicas == 1 or 2 * sum(owners.values()) == schedule.num_microbatches


@given(st.integers(2, 8), st.integers(1, 4))
def test_hiding_the_forward_shortens_the_step_as_the_formula_says(num_stages, half):
    """T = S f + N S b + (N - 1) f for f = b = 1, up to the first update (engine notes on GEMS)."""
    num_microbatches = 2 * half
    lines = draw(build_schedule("master", num_stages=num_stages, num_microbatches=num_microbatches)).splitlines()[1:]

    last_backward = max(clock for clock, line in enumerate(lines) if "B" in line)
    assert last_backward + 1 == num_stages + num_microbatches * num_stages + num_microbatches - 1


def test_the_mirrored_replica_lies_in_reverse():
    assert [rank_of(stage, replica=1, num_stages=3) for stage in range(3)] == [2, 1, 0]


@given(requests(), st.data())
def test_a_lost_action_is_found(request, data):
    schedule = build(request)
    rank = data.draw(st.integers(0, len(schedule.ranks) - 1))
    actions = list(schedule.ranks[rank])
    lost = actions.pop(data.draw(st.integers(0, len(actions) - 1)))

    with pytest.raises(ScheduleError, match=f"rank {rank}: missing .{lost}"):
        check_schedule(with_rank(schedule, rank, actions))


def test_two_live_microbatches_are_found():
    schedule = build_schedule("mp-basic", num_stages=2, num_microbatches=2)
    forward0, backward0, forward1, backward1, step = schedule.ranks[0]

    with pytest.raises(ScheduleError, match=r"rank 0: F of stage 0.* while the activations of F .* are alive"):
        check_schedule(with_rank(schedule, 0, [forward0, forward1, backward0, backward1, step]))


def test_an_update_before_the_last_backward_is_found():
    schedule = build_schedule("mp-basic", num_stages=2, num_microbatches=1)
    forward, backward, step = schedule.ranks[1]

    with pytest.raises(ScheduleError, match="comes after the first update"):
        check_schedule(with_rank(schedule, 1, [step, forward, backward]))


def test_an_order_that_stalls_is_found():
    schedule = build_schedule("mp-basic", num_stages=2, num_microbatches=2)
    forward0, backward0, forward1, backward1, step = schedule.ranks[1]

    with pytest.raises(ScheduleError, match=r"wait for each other: rank 0 at .* rank 1 at"):
        check_schedule(with_rank(schedule, 1, [forward1, backward1, forward0, backward0, step]))


def test_crosswise_updates_are_found():
    """Two ranks that each reduce their own stage first would both wait for the other's gradients."""
    schedule = build_schedule("mast", num_stages=2, num_microbatches=2)
    *work, mirror_reduce, mirror_step = schedule.ranks[0][:4] + schedule.ranks[0][6:]
    own_reduce, own_step = schedule.ranks[0][4:6]
    crossed = with_rank(schedule, 0, [*work, mirror_reduce, mirror_step, own_reduce, own_step])

    with pytest.raises(ScheduleError, match="wait for each other"):
        check_schedule(crossed)
    with pytest.raises(ScheduleError, match="stalls"):
        draw(crossed)


def test_the_middle_rank_needs_its_own_result_first():
    schedule = build_schedule("mast", num_stages=3, num_microbatches=2)
    *work, mirror_reduce, owner_reduce, owner_step, mirror_step = schedule.ranks[1]

    with pytest.raises(ScheduleError, match=r"rank 1: R.* comes before R.*replica 1, whose result it needs"):
        check_schedule(with_rank(schedule, 1, [*work, owner_reduce, mirror_reduce, owner_step, mirror_step]))


@pytest.mark.parametrize(
    ("strategy", "num_stages", "num_microbatches", "message"),
    [
        ("gpipe", 2, 2, "unknown strategy 'gpipe'; choose one of single, mp-basic, mast, master"),
        ("single", 2, 2, "single has exactly one stage, got num_stages=2; for more use mp-basic"),
        ("mp-basic", 1, 2, "mp-basic needs 2 or more stages, got num_stages=1; for one stage use single"),
        ("master", 0, 2, "master needs 2 or more stages, got num_stages=0"),
        ("mast", 2, 4, "mast has exactly 2 micro-batches, got 4; for more use master"),
        ("master", 2, 3, "got the odd number 3; use 4, or mp-basic"),
        ("mp-basic", 2, 0, "num_microbatches must be 1 or more, got 0"),
    ],
)
def test_a_request_that_does_not_fit_says_what_would(strategy, num_stages, num_microbatches, message):
    with pytest.raises(ValueError, match=message):
        build_schedule(strategy, num_stages=num_stages, num_microbatches=num_microbatches)
