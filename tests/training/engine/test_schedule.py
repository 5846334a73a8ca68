"""The order of work of every strategy, for all sizes: complete, within its memory, and never stuck."""

from collections import Counter
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.engine.schedule_requests import build, requests
from training.engine.check import check_schedule
from training.engine.schedule import Op
from training.engine.strategies import STRATEGIES, live_bound
from training.oracle.simulation.draw import by_clock


def actions_of(schedule, *ops):
    return [action for actions in schedule.ranks for action in actions if action.op in ops]


def live_counts(actions):
    """Micro-batches whose activations a rank holds after each forward and backward, in total and by replica."""
    live = Counter()
    for action in actions:
        if action.op in (Op.F, Op.B):
            live[action.replica] += 1 if action.op is Op.F else -1
            yield live.total(), dict(live)


def most_live(actions):
    return max((total for total, _ in live_counts(actions)), default=0)


def clocks(schedule):
    """Table of a drawing: one row per clock, one letter and micro-batch per rank."""
    rows = []
    for row in by_clock(schedule):
        cells = [
            "."
            if action is None
            else f"{action.op.value}{'' if action.microbatch is None else action.microbatch}"
            + "'" * (action.replica % schedule.num_directions)
            for action in row
        ]
        rows.append(" ".join(f"{cell:3}" for cell in cells).rstrip())
    return "\n".join(rows) + "\n"


def test_two_microbatches_of_master_send_the_mirrored_forward_behind_the_first_backward():
    """`mast` of GEMS (SC20). The middle rank holds its stage for both replicas and sums it up once."""
    schedule = build({"strategy": "master", "num_stages": 3, "num_microbatches": 2})

    assert clocks(schedule).startswith(
        dedent("""\
        F0  .   .
        .   F0  .
        .   .   F0
        .   .   B0
        .   B0  F1'
        B0  F1' .
        F1' .   .
        B1' .   .
        """)
    )
    assert list(map(str, schedule.ranks[1][4:])) == ["REDUCE of stage 1, replica 0", "STEP of stage 1, replica 0"]
    assert list(map(str, schedule.ranks[0][4:])) == [
        "REDUCE of stage 0, replica 0",
        "REDUCE of stage 2, replica 1",
        "STEP of stage 0, replica 0",
        "STEP of stage 2, replica 1",
    ]


def test_mp_basic_has_one_rank_at_work_at_a_time():
    schedule = build({"strategy": "mp-basic", "num_stages": 2, "num_microbatches": 2})

    assert clocks(schedule).startswith("F0  .\n.   F0\n.   B0\nB0  .\nF1  .\n.   F1\n.   B1\nB1  R\n")


def test_chimera_works_in_both_directions_at_once():
    schedule = build({"strategy": "chimera", "num_stages": 4, "num_microbatches": 4})

    assert clocks(schedule).startswith(
        dedent("""\
        F0  .   .   F2'
        F1  F0  F2' F3'
        .   F2' F0  .
        F2' F1  F3' F0
        B2' F3' F1  B0
        F3' B2' B0  F1
        B3' B0  B2' B1
        """)
    )


@given(requests(), st.booleans())
def test_every_schedule_passes_its_check(request, forward_only):
    check_schedule(build(request, forward_only=forward_only), forward_only=forward_only)


@given(requests(), st.booleans())
def test_every_microbatch_passes_every_stage_once_each_way(request, forward_only):
    schedule = build(request, forward_only=forward_only)
    everything = [(s, k) for s in range(schedule.num_stages) for k in range(schedule.num_microbatches)]

    for op in (Op.F,) if forward_only else (Op.F, Op.B):
        assert sorted((action.stage, action.microbatch) for action in actions_of(schedule, op)) == everything


@given(requests(), st.booleans())
def test_every_action_lies_on_the_rank_that_holds_its_stage(request, forward_only):
    schedule = build(request, forward_only=forward_only)

    for rank, actions in enumerate(schedule.ranks):
        assert {schedule.rank_of(action) for action in actions} <= {rank}


@given(requests())
def test_forward_only_has_nothing_but_forwards(request):
    assert {action.op for action in actions_of(build(request, forward_only=True), *Op)} == {Op.F}


@given(requests())
def test_each_replica_owns_a_contiguous_range_of_microbatches(request):
    schedule = build(request)
    owners = {action.microbatch: action.replica for action in actions_of(schedule, Op.F)}

    assert sorted(owners) == list(range(schedule.num_microbatches))
    assert [owners[k] for k in sorted(owners)] == sorted(owners.values())
    counts = [list(owners.values()).count(replica) for replica in range(schedule.placement.num_replicas)]
    assert max(counts) - min(counts) <= 1
    assert [len(schedule.microbatches_of(replica)) for replica in range(schedule.placement.num_replicas)] == counts


@given(requests())
def test_each_rank_reduces_and_steps_each_of_its_stages_once_after_all_else(request):
    schedule = build(request)

    for rank, actions in enumerate(schedule.ranks):
        stages = sorted({stage for _, stage in schedule.placement.held_by(rank)})
        ends = [(action.op, action.stage) for action in actions if action.op in (Op.REDUCE, Op.STEP)]
        assert ends == [(Op.REDUCE, stage) for stage in stages] + [(Op.STEP, stage) for stage in stages]
        assert [(action.op, action.stage) for action in actions[-len(ends) :]] == ends


@given(requests())
def test_all_ranks_that_hold_a_stage_meet_in_its_updates(request):
    schedule = build(request)

    for action in actions_of(schedule, Op.REDUCE, Op.STEP):
        partners = schedule.partners(action)
        assert all(action in schedule.partners(partner) for partner in partners)
        ranks = {schedule.rank_of(one) for one in (action, *partners)}
        assert ranks == set(schedule.placement.holders(action.stage))
        assert len(ranks) == 1 + len(partners)


@given(requests())
def test_micro_batches_of_a_stage_on_one_rank_are_neighbours(request):
    """Only then does the rank pass on just a few nodes of the one tree over the micro-batches."""
    schedule = build(request)

    for actions in schedule.ranks:
        for stage in {action.stage for action in actions}:
            mine = sorted(a.microbatch for a in actions if a.op is Op.F and a.stage == stage)
            assert mine == list(range(mine[0], mine[-1] + 1)) if mine else True


@given(requests())
def test_a_microbatch_knows_its_replica(request):
    schedule = build(request)

    assert all(schedule.replica_of(a.microbatch) == a.replica for a in actions_of(schedule, Op.F, Op.B))


@given(requests(("single", "mp-basic", "master")))
def test_master_and_mp_basic_keep_one_microbatch_alive_per_rank(request):
    schedule = build(request)

    for actions in schedule.ranks:
        assert most_live(actions) == int(any(action.op is Op.F for action in actions))


@given(requests(("gpipe",)))
def test_gpipe_keeps_all_microbatches_of_its_replica_alive(request):
    schedule = build(request)

    for rank, actions in enumerate(schedule.ranks):
        assert most_live(actions) == len(schedule.microbatches_of(rank // schedule.num_stages))


@given(requests(("1f1b",)))
def test_1f1b_keeps_as_many_alive_as_there_are_stages_from_here_to_the_end(request):
    schedule = build(request)

    for rank, actions in enumerate(schedule.ranks):
        group, stage = divmod(rank, schedule.num_stages)
        share = len(schedule.microbatches_of(group))
        assert most_live(actions) == min(schedule.num_stages - stage, share)


@given(requests(("chimera",)))
def test_chimera_keeps_at_most_as_many_alive_as_there_are_stages(request):
    schedule = build(request)

    for actions in schedule.ranks:
        assert most_live(actions) <= schedule.num_stages


@given(st.integers(1, 4), st.integers(1, 3))
def test_a_full_chimera_keeps_from_s_half_plus_1_to_s_alive(half, units):
    """The range of the paper's table, for N a multiple of S (Li & Hoefler, SC21)."""
    num_stages = 2 * half
    schedule = build({"strategy": "chimera", "num_stages": num_stages, "num_microbatches": units * num_stages})

    most = [most_live(actions) for actions in schedule.ranks]
    assert (min(most), max(most)) == (half + 1, num_stages)


@given(requests())
def test_no_stage_keeps_more_alive_than_its_bound(request):
    schedule = build(request)

    for actions in schedule.ranks:
        stages = {action.replica: action.stage for action in actions}
        for total, by_replica in live_counts(actions):
            for replica, count in by_replica.items():
                assert count <= live_bound(
                    schedule.strategy,
                    stage=stages[replica],
                    num_stages=schedule.num_stages,
                    num_microbatches=len(schedule.microbatches_of(replica)),
                )
            assert total <= 1 or schedule.strategy != "master"


@given(requests())
def test_each_rank_holds_one_stage_per_direction(request):
    schedule = build(request)
    directions = 2 if STRATEGIES[request["strategy"]].is_mirrored else 1

    for rank in range(len(schedule.ranks)):
        assert len(schedule.placement.held_by(rank)) == directions


@pytest.mark.parametrize(
    ("strategy", "num_stages", "num_microbatches", "data_parallel", "message"),
    [
        ("mast", 2, 2, 1, f"unknown strategy 'mast'; choose one of {', '.join(STRATEGIES)}"),
        ("single", 2, 2, 1, "single has exactly one stage, got num_stages=2; for more use mp-basic"),
        ("chimera", 3, 2, 1, "chimera needs an even number of stages, got num_stages=3; use 4, or 1f1b"),
        ("master", 0, 2, 1, "num_stages must be 1 or more, got 0"),
        ("mp-basic", 2, 0, 1, "num_microbatches must be 1 or more, got 0"),
        ("gpipe", 2, 1, 0, "data_parallel must be 1 or more, got 0"),
    ],
)
def test_a_request_that_does_not_fit_says_what_would(strategy, num_stages, num_microbatches, data_parallel, message):
    with pytest.raises(ValueError, match=message):
        build(
            {
                "strategy": strategy,
                "num_stages": num_stages,
                "num_microbatches": num_microbatches,
                "data_parallel": data_parallel,
            }
        )
