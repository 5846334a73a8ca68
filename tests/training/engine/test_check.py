"""The checker finds every way in which a schedule can be wrong."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.training.engine.schedule_requests import build, requests
from training.engine.check import check_schedule
from training.engine.schedule import Op, ScheduleError, by_clock


def with_rank(schedule, rank, actions):
    ranks = list(schedule.ranks)
    ranks[rank] = tuple(actions)
    return replace(schedule, ranks=tuple(ranks))


def swapped(actions, first, second):
    actions = list(actions)
    i, j = actions.index(first), actions.index(second)
    actions[i], actions[j] = actions[j], actions[i]
    return actions


def pick(data, schedule, *ops):
    """A rank and the place of one of its actions of some kinds."""
    places = [(r, i) for r, actions in enumerate(schedule.ranks) for i, a in enumerate(actions) if a.op in ops]
    return data.draw(st.sampled_from(places))


@given(requests(), st.data())
def test_a_lost_action_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, *Op)
    actions = list(schedule.ranks[rank])
    lost = actions.pop(index)

    with pytest.raises(ScheduleError, match=f"rank {rank}: missing .{lost}"):
        check_schedule(with_rank(schedule, rank, actions))


@given(requests(), st.data())
def test_a_doubled_action_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, *Op)
    actions = list(schedule.ranks[rank])
    doubled = actions[index]
    actions.insert(data.draw(st.integers(0, len(actions))), doubled)

    with pytest.raises(ScheduleError, match=rf"rank {rank}: missing \[\], too many \[{doubled}\]"):
        check_schedule(with_rank(schedule, rank, actions))


@given(requests(), st.data())
def test_an_action_on_the_wrong_rank_is_found(request, data):
    schedule = build(request)
    assume(len(schedule.ranks) > 1)
    rank, index = pick(data, schedule, *Op)
    other = data.draw(st.sampled_from([r for r in range(len(schedule.ranks)) if r != rank]))
    actions = list(schedule.ranks[rank])
    moved = with_rank(schedule, other, [actions.pop(index), *schedule.ranks[other]])

    with pytest.raises(ScheduleError, match="missing"):
        check_schedule(with_rank(moved, rank, actions))


@given(requests(), st.data())
def test_a_microbatch_in_place_of_another_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, Op.F, Op.B)
    actions = list(schedule.ranks[rank])
    actions[index] = replace(actions[index], microbatch=actions[index].microbatch + 1)

    with pytest.raises(ScheduleError, match=f"rank {rank}: missing"):
        check_schedule(with_rank(schedule, rank, actions))


@given(requests(), st.data())
def test_a_backward_before_its_forward_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, Op.B)
    backward = schedule.ranks[rank][index]
    wrong = swapped(schedule.ranks[rank], backward, replace(backward, op=Op.F))

    with pytest.raises(ScheduleError, match=f"rank {rank}: .* comes before .*, whose result it needs"):
        check_schedule(with_rank(schedule, rank, wrong))


@given(requests(), st.data())
def test_an_update_before_the_last_backward_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, Op.STEP)
    actions = list(schedule.ranks[rank])
    actions.insert(0, actions.pop(index))

    with pytest.raises(ScheduleError, match=f"rank {rank}: .* comes after the first update|comes before"):
        check_schedule(with_rank(schedule, rank, actions))


@given(requests(), st.data())
def test_a_reduction_before_the_last_backward_of_its_copy_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, Op.REDUCE)
    actions = list(schedule.ranks[rank])
    reduction = actions.pop(index)
    assume(schedule.microbatches_of(reduction.replica))
    first = next(i for i, action in enumerate(actions) if action.op is Op.B and action.replica == reduction.replica)

    with pytest.raises(ScheduleError, match=f"rank {rank}: .* comes before .*, whose result it needs"):
        check_schedule(with_rank(schedule, rank, [*actions[:first], reduction, *actions[first:]]))


@given(requests(("mp-basic", "master", "single")), st.data())
def test_two_live_microbatches_are_found(request, data):
    schedule = build({**request, "num_microbatches": 2 * request["data_parallel"] * 2})
    rank, index = pick(data, schedule, Op.B)
    actions = list(schedule.ranks[rank])
    assume(actions[index + 1].op is Op.F)
    actions[index], actions[index + 1] = actions[index + 1], actions[index]

    with pytest.raises(ScheduleError, match=f"rank {rank}: F of stage .* while the activations of .* are alive"):
        check_schedule(with_rank(schedule, rank, actions))


def test_a_stage_of_1f1b_that_runs_ahead_too_far_is_found():
    schedule = build({"strategy": "1f1b", "num_stages": 2, "num_microbatches": 4})
    forward0, backward0, forward1, *rest = schedule.ranks[1]
    assert (forward1.op, backward0.op) == (Op.F, Op.B)

    with pytest.raises(
        ScheduleError, match=r"rank 1: F of stage 1.*micro-batch 1 starts while .* 1f1b allows 1 in all"
    ):
        check_schedule(with_rank(schedule, 1, [forward0, forward1, backward0, *rest]))


def test_a_chimera_that_runs_ahead_too_far_is_found():
    schedule = build({"strategy": "chimera", "num_stages": 2, "num_microbatches": 4})
    order = [action for action in schedule.ranks[0] if action.op in (Op.F, Op.B)]
    mine = [action for action in order if action.replica == 0]
    early = [mine[0], mine[2], mine[1], *mine[3:]]
    rest = [action for action in schedule.ranks[0] if action not in mine]

    with pytest.raises(ScheduleError, match="chimera allows 1 in all"):
        check_schedule(with_rank(schedule, 0, [*early, *rest]))


def test_an_order_that_stalls_is_found():
    schedule = build({"strategy": "mp-basic", "num_stages": 2, "num_microbatches": 2})
    forward0, backward0, forward1, backward1, *rest = schedule.ranks[1]
    crossed = with_rank(schedule, 1, [forward1, backward1, forward0, backward0, *rest])

    with pytest.raises(ScheduleError, match=r"wait for each other: rank 0 at .* rank 1 at"):
        check_schedule(crossed)
    with pytest.raises(ScheduleError, match="stalls"):
        list(by_clock(crossed))


def test_messages_in_another_order_than_they_are_taken_are_found():
    """Each rank's own order is sound and nothing waits for itself, but the channel would deliver the wrong boundary."""
    schedule = build({"strategy": "gpipe", "num_stages": 2, "num_microbatches": 2})
    forward0, forward1, *rest = schedule.ranks[1]

    with pytest.raises(ScheduleError, match="wait for each other"):
        check_schedule(with_rank(schedule, 1, [forward1, forward0, *rest]))


@pytest.mark.parametrize("strategy", ["master", "chimera"])
@pytest.mark.parametrize("op", [Op.REDUCE, Op.STEP])
def test_crosswise_reductions_and_updates_are_found(strategy, op):
    """Two ranks that each wait for the other's gradients (or weights) first would wait for ever."""
    schedule = build({"strategy": strategy, "num_stages": 2, "num_microbatches": 2})
    taken, given = (0, 1) if op is Op.REDUCE else (1, 0)
    wrong = schedule
    for rank, actions in enumerate(schedule.ranks):
        work = [action for action in actions if action.op in (Op.F, Op.B)]
        late = sorted((a for a in actions if a.op is op), key=lambda a: a.replica == given)
        assert late[0].replica == taken
        others = [action for action in actions if action.op not in (Op.F, Op.B, op)]
        order = [*work, *late, *others] if op is Op.REDUCE else [*work, *others, *late]
        wrong = with_rank(wrong, rank, order)

    with pytest.raises(ScheduleError, match="wait for each other"):
        check_schedule(wrong)


def test_the_middle_rank_needs_its_own_result_first():
    schedule = build({"strategy": "master", "num_stages": 3, "num_microbatches": 2})
    *work, mirror_reduce, owner_reduce, owner_step, mirror_step = schedule.ranks[1]

    with pytest.raises(ScheduleError, match=r"rank 1: REDUCE.* comes before REDUCE.*replica 1, whose result it needs"):
        check_schedule(with_rank(schedule, 1, [*work, owner_reduce, mirror_reduce, owner_step, mirror_step]))


def test_groups_that_reduce_their_own_stage_first_are_found():
    schedule = build({"strategy": "master", "num_stages": 2, "num_microbatches": 4, "data_parallel": 2})

    with pytest.raises(ScheduleError, match="wait for each other"):
        check_schedule(_all_owners_first(schedule))


def _all_owners_first(schedule):
    """Each rank reduces its normal stage before it passes its mirrored one on."""
    wrong = schedule
    for rank, actions in enumerate(schedule.ranks):
        work = [action for action in actions if action.op in (Op.F, Op.B)]
        reductions = sorted((a for a in actions if a.op is Op.REDUCE), key=lambda a: a.replica)
        wrong = with_rank(wrong, rank, [*work, *reductions, *(a for a in actions if a.op is Op.STEP)])
    return wrong


@given(requests())
def test_a_step_does_not_pass_as_forward_only(request):
    with pytest.raises(ScheduleError, match="too many"):
        check_schedule(build(request), forward_only=True)
    with pytest.raises(ScheduleError, match="missing"):
        check_schedule(build(request, forward_only=True))
