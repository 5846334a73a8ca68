"""Splitting a network over ranks changes nothing: not one bit of losses, gradients, weights or statistics."""

import pytest
import torch

from tests.distributed.launch import run_ranks
from tests.distributed.mutants import (
    train_with_contiguous_buffers,
    train_with_flipped_bit,
    train_with_late_mirror,
    train_with_sequential_sum,
)
from tests.distributed.problem import (
    Case,
    Outcome,
    differences,
    group_norm_resnet,
    train,
    train_all,
    tuple_network,
)

STRATEGIES = [("mp-basic", 1), ("mp-basic", 2), ("mp-basic", 4), ("mast", 2), ("master", 2), ("master", 4)]
VARIANTS = [(p, channels_last) for p in ("fp32", "bf16") for channels_last in (False, True)]
MATRIX = [Case(strategy, n, p, channels_last) for strategy, n in STRATEGIES for p, channels_last in VARIANTS]
EVERY_CUT = [
    Case("master", 4, channels_last=True, costs=costs)
    for costs in [(9.0, 1, 1, 1, 1), (1.0, 9, 1, 1, 1), (1.0, 1, 1, 9, 1), (1.0, 1, 1, 1, 9)]
]
OTHERS = [  # tuples, expanded gradients and views with gaps between stages; more and fewer micro-batches
    Case("master", 4, network=group_norm_resnet),
    Case("master", 4, network=tuple_network, costs=(1.0, 1.0, 1.0)),
    Case("mp-basic", 2, network=tuple_network, costs=(1.0, 1.0, 1.0)),
    Case("master", 8),
    Case("mp-basic", 3),
]
CASES = MATRIX + EVERY_CUT + OTHERS


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def single() -> dict[Case, Outcome]:
    return {case: train(None, case) for case in {case.as_single for case in CASES}}


@pytest.mark.parametrize("num_stages", [2, 3])
def test_splitting_the_network_changes_no_bit(num_stages, single):
    by_rank = run_ranks(num_stages, train_all, CASES)

    for index, case in enumerate(CASES):
        outcomes = [outcomes[index] for outcomes in by_rank]
        assert differences(outcomes, single[case.as_single]) == [], case
        check_who_was_asked(case, outcomes)


def check_who_was_asked(case: Case, outcomes: list[Outcome]) -> None:
    """Only the rank at the front of a replica loads images, only the one at its end labels."""
    everything = set(range(case.num_microbatches))
    lower = everything if case.strategy == "mp-basic" else set(range(case.num_microbatches // 2))
    for rank, outcome in enumerate(outcomes):
        is_first, is_last = rank == 0, rank == len(outcomes) - 1
        assert outcome.asked_inputs == (lower if is_first else everything - lower if is_last else set())
        assert outcome.asked_labels == (lower if is_last else everything - lower if is_first else set())


def test_other_numbers_of_microbatches_agree_to_rounding():
    """The halves of six micro-batches are no subtrees of the whole, so the last bits may differ."""
    outcomes = run_ranks(2, train, Case("master", 6))
    expected = train(None, Case("single", 6))

    for outcome in outcomes:
        for name, gradient in outcome.gradients[0].items():
            torch.testing.assert_close(gradient, expected.gradients[0][name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("fault", "case", "noticed"),
    [
        (train_with_flipped_bit, Case("master", 4), "gradient"),
        (train_with_contiguous_buffers, Case("mp-basic", 4, channels_last=True), "gradient"),
        (train_with_late_mirror, Case("mast", 2), "mirrored weight"),
        (train_with_sequential_sum, Case("master", 8), "gradient"),
    ],
)
def test_a_planted_fault_is_noticed(fault, case, noticed, single):
    outcomes = run_ranks(2, fault, case)

    assert any(noticed in difference for difference in differences(outcomes, single[case.as_single]))


def test_a_rank_that_fails_fails_the_test():
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="single has exactly one stage"):
        run_ranks(2, train, Case("single", 2))
