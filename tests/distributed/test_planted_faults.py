"""The equality tests can fail: every planted fault is noticed where it must show."""

from dataclasses import replace
from unittest import mock

import pytest
import torch

from tests.distributed.cases import pairwise_cases
from tests.distributed.launch import run_ranks
from tests.distributed.mutants import (
    train_all_with_fault,
    train_all_with_faults,
    train_with_contiguous_buffers,
    train_with_double_counting,
    train_with_dropped_microbatch,
    train_with_flipped_bit,
    train_with_late_mirror,
    train_with_other_first_weights,
    train_with_random_numbers_of_the_group,
    train_with_random_numbers_of_the_rank,
    train_with_sequential_sum,
    train_with_swapped_rows,
    train_with_wrong_scale,
)
from tests.distributed.networks import dropout_resnet
from tests.distributed.problem import Case, differences, evenly, train
from training.engine.recompute import Recompute
from training.engine.schedule import Op, ScheduleError
from training.engine.strategies import STRATEGIES, build_schedule

MASTER = Case("master", 2, evenly(4))
BASIC = Case("mp-basic", 2, evenly(4))
TWO_GROUPS = Case("single", 1, evenly(4), data_parallel=2)
UNEVEN = Case("master", 2, ((2, 2, 1), (2, 1), (2, 2, 2)))
DROPPED_OUT = replace(BASIC, network=dropout_resnet)
DROPPED_OUT_GROUPS = replace(TWO_GROUPS, network=dropout_resnet)
RECOMPUTED = replace(MASTER, recompute=Recompute(1))

PLANTED = [
    (train_with_flipped_bit, MASTER, ["gradient"]),
    (train_with_flipped_bit, TWO_GROUPS, ["gradient"]),
    (train_with_wrong_scale, MASTER, ["losses", "gradient"]),
    (train_with_wrong_scale, UNEVEN, ["losses", "gradient"]),
    (train_with_dropped_microbatch, MASTER, ["gradient"]),
    (train_with_dropped_microbatch, TWO_GROUPS, ["gradient"]),
    (train_with_swapped_rows, MASTER, ["copy of replica 0", "copy of replica 1"]),
    (train_with_random_numbers_of_the_rank, DROPPED_OUT, ["losses", "gradient"]),
    (train_with_random_numbers_of_the_group, DROPPED_OUT_GROUPS, ["losses", "gradient"]),
    (train_with_other_first_weights, BASIC, ["losses", "gradient"]),
    (train_with_contiguous_buffers, replace(BASIC, channels_last=True), ["gradient"]),
    (train_with_double_counting, RECOMPUTED, ["running_mean", "running_var"]),
    (train_with_late_mirror, MASTER, ["copy of replica 0", "copy of replica 1"]),
    (train_with_sequential_sum, BASIC, ["gradient"]),
]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def by_rank():
    """Outcomes of all planted faults, by rank."""
    return run_ranks(2, train_all_with_faults, [(fault, case) for fault, case, _ in PLANTED])


@pytest.mark.parametrize("index", range(len(PLANTED)), ids=[fault.__name__ for fault, _, _ in PLANTED])
def test_a_planted_fault_is_noticed(index, by_rank):
    _, case, noticed = PLANTED[index]
    single = train(None, case.as_single)

    without, with_fault = (differences([rank[index][i] for rank in by_rank], single) for i in (0, 1))

    assert without == []
    assert [what for what in noticed if not any(what in difference for difference in with_fault)] == [], with_fault


def stops_at(fault, case):
    """Whether the engine itself fails on the fault: nothing is left to add, or parts do not match."""
    shared = case.data_parallel > 1 or STRATEGIES[case.strategy].is_mirrored
    return (fault is train_with_dropped_microbatch and min(map(len, case.batches)) == 1) or (
        fault is train_with_sequential_sum and shared
    )


@pytest.mark.prove
@pytest.mark.parametrize("fault", dict.fromkeys(fault for fault, _, _ in PLANTED), ids=lambda fault: fault.__name__)
def test_the_short_set_of_cases_notices_it_too(fault):
    cases = [case for case in pairwise_cases() if case.num_ranks == 2 and not stops_at(fault, case)]
    by_rank = run_ranks(2, train_all_with_fault, fault, cases)

    noticed_cases = [
        index
        for index, case in enumerate(cases)
        if differences([outcomes[index] for outcomes in by_rank], train(None, case.as_single))
    ]
    print(f"noticed in {len(noticed_cases)} of {len(cases)} cases")
    assert noticed_cases


@pytest.mark.parametrize("op", [Op.F, Op.B])
def test_a_schedule_without_a_microbatch_is_refused(op):
    def forgetful(*args, **kwargs):
        schedule = build_schedule(*args, **kwargs)
        kept = [tuple(a for a in actions if (a.op, a.microbatch) != (op, 3)) for actions in schedule.ranks]
        return replace(schedule, ranks=tuple(kept))

    with (
        mock.patch("training.engine.plan.build_schedule", forgetful),
        pytest.raises(ScheduleError, match=f"missing .{op.name} of stage 0, replica 0, micro-batch 3"),
    ):
        train(None, BASIC.as_single)


def test_a_rank_that_fails_fails_the_test():
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="single has exactly one stage"):
        run_ranks(2, train, Case("single", 2, evenly(2)))
