"""Branches of a block: which part has them, and the random numbers that they draw."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from training.parallel.branches import Branches, branch_dropout
from training.parallel.link import rows_of


@pytest.mark.parametrize("count", [1, 2, 5, 8, 12])
def test_every_branch_belongs_to_one_part_and_no_part_is_without(count):
    branches = Branches([nn.Identity() for _ in range(count)])
    for num_parts in range(1, count + 1):
        owners = [branches.part_of(number, num_parts) for number in range(count)]
        assert set(owners) == set(range(num_parts))
        for part in range(num_parts):
            assert [number for number, owner in enumerate(owners) if owner == part] == list(
                rows_of(count, part, num_parts)
            )
            assert list(branches.of_part(part, num_parts)) == list(rows_of(count, part, num_parts))


def masks(numbers: list[int], times: int = 1) -> list[torch.Tensor]:
    """What dropout makes of ones of 8 channels for each branch, each time; all of it in one total."""
    drawn = []

    def term(_, x_c):
        for _ in range(times):
            drawn.append(branch_dropout(x_c, 0.5, numbers, training=True))
        return x_c

    torch.manual_seed(3)
    Branches([nn.Identity()]).total(term, torch.ones(4, 8 * len(numbers)))
    return drawn


def test_a_branch_draws_the_same_wherever_it_is_computed_and_no_two_draw_alike():
    (together,) = masks([0, 1, 2])
    for number in range(3):
        (alone,) = masks([number])
        assert torch.equal(together[:, 8 * number : 8 * number + 8], alone)
    first, second, third = together.split(8, dim=1)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    assert set(together.unique().tolist()) == {0.0, 2.0}


def test_a_branch_that_draws_twice_draws_something_else():
    once, again = masks([1], times=2)
    assert not torch.equal(once, again)


def test_the_next_random_number_of_a_block_does_not_depend_on_what_its_branches_drew():
    masks([0])
    after_one = torch.rand(3)
    masks([0, 1, 2], times=2)
    assert torch.equal(torch.rand(3), after_one)
    torch.manual_seed(3)
    assert not torch.equal(torch.rand(3), after_one)


def test_in_evaluation_nothing_is_dropped():
    x_c = torch.ones(4, 8)
    assert branch_dropout(x_c, 0.5, [0], training=False) is x_c
