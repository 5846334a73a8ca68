"""Stages in parts on several ranks: the bits of virtual parts, the numbers of one process, the predicted bytes."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest import mock

import pytest

from tests.distributed.launch import run_ranks
from tests.distributed.networks import dropout_resnet, small_resnet
from tests.distributed.part_cases import FACTORS, part_cases
from tests.distributed.part_runs import check_bits_and_numbers, engine_plan, farthest, kept, live_bytes
from tests.distributed.problem import (
    Case,
    StepBatch,
    evenly,
    loss_sum,
    make_engine,
    train,
)
from training.engine.agreement import NonFiniteError
from training.engine.parts import StageLink
from training.engine.piece import Piece
from training.engine.predict import predict_memory
from training.engine.ranks import LostPeerError, Ranks
from training.engine.recompute import Recompute
from training.oracle.simulation.costs import plan_stage_costs
from training.oracle.simulation.divided import divided_costs
from training.parallel import norm
from training.parallel.division import NO_SWAPS, WHOLE
from training.parallel.halo import Transfer

pytestmark = pytest.mark.usefixtures("one_thread")

TWO = Case("single", 1, evenly(2), parts=(2,), split=("rows",))


@pytest.mark.parametrize("num_ranks", [4, 3, 2])
def test_parts_on_ranks_give_the_bits_of_virtual_parts_and_the_numbers_of_one_process(num_ranks):
    check_bits_and_numbers(num_ranks, [case for case in part_cases() if case.num_ranks == num_ranks])


@pytest.mark.parametrize(
    ("strategy", "parts"), [("1f1b", (2, 2)), ("gpipe", (2, 1)), ("single", (3,)), ("1f1b", (1, 2))]
)
def test_live_bytes_of_each_part_are_those_predicted_to_the_byte(strategy, parts):
    cases = [
        Case(
            strategy, len(parts), evenly(3), network=network, parts=parts, split=(split,) * len(parts),
            recompute=recompute, channels_last=channels_last,
        )  # type: ignore[arg-type]
        for network, channels_last in ((small_resnet, True), (dropout_resnet, False))
        for split in FACTORS["split"]
        for recompute in (Recompute(), Recompute(1))
    ]  # fmt: skip
    measured = run_ranks(cases[0].num_ranks, live_bytes, cases)[0]

    for case, peaks in zip(cases, measured, strict=True):
        plan = engine_plan(case)
        predicted = [rank.peak_bytes for rank in predict_memory(case.network(), loss_sum, StepBatch(case, 0), plan)]
        assert peaks == predicted, case


def swapped(ranks: Ranks, cases: list[Case]) -> list[tuple[int, int]]:
    """Groups of messages between parts in one step of each case, and the bytes that this part gave."""
    found = []
    for case in cases:
        engine, sizes = make_engine(ranks, case), []
        swap = StageLink.swap

        def counted(self, gives, takes, swap=swap, sizes=sizes):
            sizes.append(sum(tensor.nbytes for give in gives for tensor in give.values()))
            return swap(self, gives, takes)

        with mock.patch.object(StageLink, "swap", counted):
            engine.train_step(StepBatch(case, 0), loss_sum)
        found.append((len(sizes), sum(sizes)))
    return found


def test_parts_send_each_other_what_was_counted_beforehand():
    cases = [
        Case("single", 1, evenly(2), network=network, parts=(3,), split=(split,), recompute=recompute)
        for network in (small_resnet, dropout_resnet)
        for split in FACTORS["split"]
        for recompute in (Recompute(), Recompute(1))
    ]
    measured = run_ranks(3, swapped, cases)

    for index, case in enumerate(cases):
        plan, shapes = engine_plan(case), StepBatch(case, 0).shapes
        swaps = NO_SWAPS
        for shape in shapes:
            costs = divided_costs(case.network(), shape, [WHOLE, *plan.divisions])
            (stage,) = plan_stage_costs(plan, costs)
            swaps += stage.forward_swaps + stage.backward_at_once_swaps
        given = [sum(count for (giver, _), count in swaps.num_bytes.items() if giver == part) for part in range(3)]
        assert [own[index] for own in measured] == [(swaps.count, count) for count in given], case


def test_a_part_keeps_little_more_than_its_share():
    """Of images with many rows: their halos are thin."""
    with mock.patch("tests.distributed.problem.SIZES_HW", ((128, 32),) * 3):
        two = predict_memory(small_resnet(), loss_sum, StepBatch(TWO, 0), engine_plan(TWO))
        one = predict_memory(small_resnet(), loss_sum, StepBatch(TWO.whole, 0), engine_plan(TWO.whole))
    assert max(part.peak_bytes for part in two) <= 0.53 * one[0].peak_bytes


def one_part_dies(ranks: Ranks) -> tuple[int, str] | None:
    """Let the second part exit in the middle of its first forward."""
    engine = make_engine(ranks, TWO)
    if ranks.rank == 1:
        with mock.patch.object(norm, "statistics_of", side_effect=lambda *_: os._exit(0)):
            engine.train_step(StepBatch(TWO, 0), loss_sum)
    try:
        engine.train_step(StepBatch(TWO, 0), loss_sum)
    except LostPeerError as error:
        return error.peer, str(error)
    return None


def test_a_part_that_dies_is_named_with_the_action():
    peer, message = run_ranks(2, one_part_dies)[0]
    assert peer == 1
    assert "rank 0 in (F of stage 0, replica 0, micro-batch 0)" in message
    assert "rank 1" in message


# --- planted faults --------------------------------------------------------------------------------------------------


def a_row_short(self: Transfer, giver: int, taker: int) -> range:
    """Give one row less of each halo."""
    rows = _rows(self, giver, taker)
    return rows if giver == taker or len(rows) < 1 else rows[:-1]


def without_its_gradient(self: Transfer, gradients):
    """Keep the gradient of a halo."""
    self.__dict__["crosses"] = False
    return _give_back(self, gradients)


def with_local_statistics(link, rows, height):
    """Normalise each part by its own statistics."""
    with mock.patch.object(norm, "gather_small", lambda link, values: [[value] * link.num_parts for value in values]):
        return _statistics_of(link, rows, height)


def with_equal_weights(shares, values):
    """Count parts of other sizes alike."""
    return _weighted([1 / len(values)] * len(values), values)


def without_halos_again(self: Piece, passed, gradients):
    """Fetch no halos where forward is repeated."""
    with mock.patch.object(Transfer, "fetch", no_halos):
        return _again(self, passed, gradients)


def no_halos(self: Transfer, tensors):
    """Take zeros for the rows of other parts."""
    return [
        {giver: halo.new_zeros(halo.shape) for giver, halo in received.items()} for received in _fetch(self, tensors)
    ]


_rows, _give_back, _fetch, _again = Transfer.rows, Transfer.give_back, Transfer.fetch, Piece._again
_statistics_of, _weighted = norm.statistics_of, norm._weighted
FAULTS = {
    "a halo a row short": (Transfer, "rows", a_row_short),
    "the gradient of a halo not sent back": (Transfer, "give_back", without_its_gradient),
    "statistics of a part alone": (norm, "statistics_of", with_local_statistics),
    "uneven parts counted alike": (norm, "_weighted", with_equal_weights),
    "halos forgotten where forward is repeated": (Piece, "_again", without_halos_again),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault):
    uneven = replace(TWO, double=True, batches=evenly(1))
    with mock.patch("tests.distributed.problem.SIZES_HW", ((13, 16),) * 3):
        single = train(None, uneven.whole, kept)
        where, name, wrong = FAULTS[fault]
        with mock.patch.object(where, name, wrong):
            try:
                outcome = train(None, replace(uneven.as_single, recompute=Recompute(1)), kept)
            except (RuntimeError, NonFiniteError):
                return  # shapes that do not fit, or memory that was never written
    assert farthest(outcome, single) > 1e-9
