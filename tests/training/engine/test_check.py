"""The checker finds every way in which a schedule can be wrong."""

import time
import timeit
from dataclasses import replace
from itertools import product
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.training.engine.schedule_requests import build, requests
from training.engine.check import check_schedule
from training.engine.exchange import exchanges
from training.engine.schedule import Op, ScheduleError
from training.engine.strategies import STRATEGIES, build_schedule
from training.oracle.simulation.draw import by_clock


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
    """Pick a rank and the index of one of its actions of given kinds."""
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
    actions[index] = actions[index]._replace(microbatch=actions[index].microbatch + 1)

    with pytest.raises(ScheduleError, match=f"rank {rank}: missing"):
        check_schedule(with_rank(schedule, rank, actions))


@given(requests(), st.data())
def test_a_backward_before_its_forward_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, Op.B)
    backward = schedule.ranks[rank][index]
    wrong = swapped(schedule.ranks[rank], backward, backward._replace(op=Op.F))

    with pytest.raises(ScheduleError, match=f"rank {rank}: .* comes before .*, whose result it needs"):
        check_schedule(with_rank(schedule, rank, wrong))


@given(requests(), st.data())
def test_an_update_before_the_last_backward_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, Op.STEP)
    actions = list(schedule.ranks[rank])
    actions.insert(0, actions.pop(index))

    with pytest.raises(ScheduleError, match=f"rank {rank}: .* comes after STEP.*; all of a step's sums"):
        check_schedule(with_rank(schedule, rank, actions))


@given(requests(), st.data())
def test_a_reduction_before_the_last_backward_is_found(request, data):
    schedule = build(request)
    rank, index = pick(data, schedule, Op.REDUCE)
    actions = list(schedule.ranks[rank])
    reduction = actions.pop(index)
    work = [action for action in actions if action.op in (Op.F, Op.B)]
    assume(work)

    with pytest.raises(ScheduleError, match=f"rank {rank}: B of .* comes after REDUCE.*; all of a step's sums follow"):
        check_schedule(with_rank(schedule, rank, [*work[:-1], reduction, *actions[len(work) - 1 :]]))


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

    with pytest.raises(ScheduleError, match=r"wait for each other: rank 0 in .* rank 1 in"):
        check_schedule(crossed)
    with pytest.raises(ScheduleError, match="stalls"):
        list(by_clock(crossed))


def test_messages_in_another_order_than_they_are_taken_are_found():
    """Every rank's order is sound and there is no deadlock, but the channel would deliver the wrong boundary."""
    schedule = build({"strategy": "gpipe", "num_stages": 2, "num_microbatches": 2})
    forward0, forward1, *rest = schedule.ranks[1]

    with pytest.raises(ScheduleError, match="wait for each other"):
        check_schedule(with_rank(schedule, 1, [forward1, forward0, *rest]))


@pytest.mark.parametrize("strategy", ["master", "chimera"])
@pytest.mark.parametrize("op", [Op.REDUCE, Op.STEP])
def test_crosswise_reductions_and_updates_are_found(strategy, op):
    """Two ranks that wait for each other in different stages' sums would wait forever."""
    schedule = build({"strategy": strategy, "num_stages": 2, "num_microbatches": 2})
    actions = list(schedule.ranks[1])
    first, second = (index for index, action in enumerate(actions) if action.op is op)
    actions[first], actions[second] = actions[second], actions[first]

    with pytest.raises(ScheduleError, match=f"wait for each other: rank 0 in .{op.name} of stage 0"):
        check_schedule(with_rank(schedule, 1, actions))


@given(requests())
def test_a_group_that_asks_for_its_own_result_first_is_found(request):
    """Assume no more than NCCL promises: an early receive may block the send behind it."""
    schedule = build(request)
    assume(schedule.num_stages > 1)

    def asking_ahead(given_schedule, rank):
        groups = exchanges(given_schedule, rank)
        takes = [group for groups_before in groups for group in groups_before if group.takes]
        return [[group._replace(gives=()) for group in takes], *groups]

    with (
        mock.patch("training.engine.check.exchanges", asking_ahead),
        pytest.raises(ScheduleError, match="wait for each other"),
    ):
        check_schedule(schedule)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_meets_under_the_weakest_promise(strategy):
    """Up to eight stages and 16 micro-batches in each of three groups; training and inference."""
    for num_stages in range(1, 9):
        if STRATEGIES[strategy].refusal(num_stages) is not None:
            continue
        for num_microbatches, data_parallel, forward_only in product(range(1, 17), (1, 2, 3), (False, True)):
            schedule = build_schedule(
                strategy,
                num_stages=num_stages,
                num_microbatches=num_microbatches * data_parallel,
                data_parallel=data_parallel,
                forward_only=forward_only,
            )
            check_schedule(schedule, forward_only=forward_only)


def test_a_strategy_that_is_not_known_has_no_bound_to_keep_to():
    schedule = build_schedule("gpipe", num_stages=2, num_microbatches=4)

    with pytest.raises(ValueError, match="unknown strategy 'zigzag'; choose one of single, mp-basic"):
        check_schedule(replace(schedule, strategy="zigzag"))


def test_a_thousand_ranks_are_checked_within_a_second():
    """Take the best of three in processor time, so that a busy machine or memory left by other tests do not count."""
    schedule = build_schedule("chimera", num_stages=8, num_microbatches=1024, data_parallel=128)

    seconds = timeit.repeat(lambda: check_schedule(schedule), number=1, repeat=3, timer=time.process_time)

    assert min(seconds) < 1.0


@given(requests())
def test_a_step_does_not_pass_as_forward_only(request):
    with pytest.raises(ScheduleError, match="too many"):
        check_schedule(build(request), forward_only=True)
    with pytest.raises(ScheduleError, match="missing"):
        check_schedule(build(request, forward_only=True))
