"""Exchanges of a rank between its actions: every message once, no sooner and no later than it must."""

from collections import Counter

from hypothesis import given

from tests.training.engine.schedule_requests import build, requests
from training.engine.exchange import Exchange, exchanges
from training.engine.placement import Placement
from training.engine.schedule import Action, Op, Schedule


def steps_of(schedule, rank):
    """(action before, its groups of messages, action after) in order."""
    actions = (None, *schedule.ranks[rank], None)
    return list(zip(actions[:-1], exchanges(schedule, rank), actions[1:], strict=True))


@given(requests())
def test_every_message_between_two_ranks_is_given_once_and_taken_once(request):
    schedule = build(request)
    given_by, taken_by = Counter(), Counter()
    for rank in range(len(schedule.ranks)):
        for _, groups, _ in steps_of(schedule, rank):
            for group in groups:
                given_by.update((message, rank) for message in group.gives)
                taken_by.update((message, rank) for message in group.takes)

    needed = {
        (source, action)
        for actions in schedule.ranks
        for action in actions
        for source in schedule.sources(action)
        if schedule.rank_of(source) != schedule.rank_of(action)
    }
    assert given_by == Counter({(message, schedule.rank_of(message[0])): 1 for message in needed})
    assert taken_by == Counter({(message, schedule.rank_of(message[1])): 1 for message in needed})


@given(requests())
def test_what_an_action_makes_goes_right_behind_it_and_what_it_needs_comes_right_before(request):
    schedule = build(request)
    for rank in range(len(schedule.ranks)):
        for before, groups, after in steps_of(schedule, rank):
            assert all(giver == before for group in groups for giver, _ in group.gives)
            assert all(taker == after for group in groups for _, taker in group.takes)


@given(requests())
def test_activations_are_gone_before_the_gradient_of_the_same_micro_batch_comes(request):
    """Otherwise activations would be kept longer than necessary, by a whole backward of the next stage."""
    schedule = build(request)
    for rank in range(len(schedule.ranks)):
        for before, groups, after in steps_of(schedule, rank):
            boundaries = [group for group in groups if group.meets is None]
            own_backward = before is not None and before.op is Op.F and after == before._replace(op=Op.B)
            if own_backward:
                assert not any(group.gives and group.takes for group in boundaries)
                assert [bool(group.gives) for group in boundaries] in ([], [True, False])
            else:
                assert len(boundaries) <= 1


@given(requests())
def test_holders_of_a_stage_meet_before_its_sum_and_after_its_update(request):
    schedule = build(request)
    for rank in range(len(schedule.ranks)):
        for before, groups, after in steps_of(schedule, rank):
            meetings = [group.meets for group in groups if group.meets is not None]
            shared = [
                action
                for action, op in ((before, Op.STEP), (after, Op.REDUCE))
                if action is not None and action.op is op and len(schedule.placement.holders(action.stage)) > 1
            ]
            assert meetings == shared


def test_a_rank_in_the_middle_gives_and_takes_in_one_group():
    schedule = build({"strategy": "gpipe", "num_stages": 3, "num_microbatches": 2})
    first, second = (Action(Op.F, 0, 1, k) for k in (0, 1))

    before_second = exchanges(schedule, 1)[1]

    assert before_second == [
        Exchange(gives=((first, first._replace(stage=2)),), takes=((second._replace(stage=0), second),))
    ]


def test_stages_that_lie_on_one_rank_exchange_no_messages():
    placement = Placement({(0, 0): (0,), (0, 1): (0,), (0, 2): (1,)})
    on_first = (Action(Op.F, 0, 0, 0), Action(Op.F, 0, 1, 0), Action(Op.B, 0, 1, 0), Action(Op.B, 0, 0, 0))
    on_second = (Action(Op.F, 0, 2, 0), Action(Op.B, 0, 2, 0))
    schedule = Schedule("mp-basic", placement, 1, (on_first, on_second))

    groups = [group for between in exchanges(schedule, 0) for group in between]

    assert groups == [
        Exchange(gives=((on_first[1], on_second[0]),)),
        Exchange(takes=((on_second[1], on_first[2]),)),
    ]


def test_a_stage_on_one_rank_meets_nobody():
    schedule = build({"strategy": "mp-basic", "num_stages": 2, "num_microbatches": 1})

    assert [group for group in exchanges(schedule, 0) if any(one.meets for one in group)] == []
