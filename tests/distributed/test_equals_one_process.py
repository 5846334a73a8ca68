"""Splitting a network over ranks changes nothing: not one bit of losses, gradients, weights or statistics."""

from functools import cache

import pytest

from tests.distributed.cases import WORLDS, all_cases, pairwise_cases
from tests.distributed.launch import run_ranks
from tests.distributed.problem import differences, expected_questions, train, train_all

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [
    pytest.param(pairwise_cases, id="every two choices"),
    pytest.param(all_cases, id="all", marks=[pytest.mark.prove, pytest.mark.timeout(1800)]),
]

single = cache(train)


@pytest.mark.parametrize("num_ranks", sorted(WORLDS, reverse=True))  # longest first, for two workers
@pytest.mark.parametrize("make_cases", LENGTHS)
def test_splitting_the_network_changes_no_bit(make_cases, num_ranks):
    cases = [case for case in make_cases() if case.num_ranks == num_ranks]
    by_rank = run_ranks(num_ranks, train_all, cases)

    for index, case in enumerate(cases):
        outcomes = [outcomes[index] for outcomes in by_rank]
        assert differences(outcomes, single(None, case.as_single)) == [], case
        for rank, outcome in enumerate(outcomes):
            assert sorted(outcome.asked) == expected_questions(case, rank), case
