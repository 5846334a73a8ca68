"""Placement of stages on ranks, for any table."""

import pytest

from training.engine.placement import Placement, over_groups, overlapping
from training.parallel.link import rows_of


def test_a_mirrored_replica_lies_in_reverse():
    placement = over_groups(num_stages=3, data_parallel=2, mirrored=True)

    assert [[placement.rank_of(replica, stage) for stage in range(3)] for replica in range(4)] == [
        [0, 1, 2],
        [2, 1, 0],
        [3, 4, 5],
        [5, 4, 3],
    ]
    assert placement.held_by(3) == ((2, 0), (3, 2))
    assert placement.holders(0) == (0, 2, 3, 5)
    assert placement.holders(1) == (1, 4)
    assert placement.first_held(4, 1) == 2


def test_without_a_mirror_each_rank_holds_one_stage():
    placement = over_groups(num_stages=2, data_parallel=3, mirrored=False)

    assert (placement.num_ranks, placement.num_replicas, placement.num_stages) == (6, 3, 2)
    assert [placement.held_by(rank) for rank in range(6)] == [
        ((replica, stage),) for replica in range(3) for stage in range(2)
    ]


def test_a_table_may_give_a_rank_several_stages_and_a_stage_several_ranks():
    placement = Placement({(0, 0): (0,), (0, 1): (1, 2), (0, 2): (0,)})

    assert placement.held_by(0) == ((0, 0), (0, 2))
    assert placement.held_by(2) == ((0, 1),)
    assert placement.holders(1) == (1, 2)
    assert [placement.rank_of(0, 1, part) for part in range(placement.num_parts(1))] == [1, 2]
    assert placement.parts_on(2, 1) == (1,)


def test_parts_of_a_stage_are_neighbours_and_groups_follow_each_other():
    """rank = (group · S + place) · P + part"""
    placement = over_groups(num_stages=2, data_parallel=2, mirrored=False, parts=(2, 2))

    for group in range(2):
        for stage in range(2):
            for part in range(2):
                assert placement.rank_of(group, stage, part) == (group * 2 + stage) * 2 + part
    assert placement.holders(1) == (2, 3, 6, 7)


def test_stages_may_have_other_numbers_of_parts():
    placement = over_groups(num_stages=3, data_parallel=2, mirrored=False, parts=(3, 1, 2))

    assert [placement.ranks_of[1, stage] for stage in range(3)] == [(6, 7, 8), (9,), (10, 11)]
    assert [placement.num_parts(stage) for stage in range(3)] == [3, 1, 2]


def test_virtual_parts_are_on_one_rank():
    placement = over_groups(num_stages=1, data_parallel=2, mirrored=False, parts=(3,), virtual=True)

    assert placement.num_ranks == 2
    assert placement.parts_on(1, 0) == (0, 1, 2)
    assert placement.held_by(1) == ((1, 0),)


@pytest.mark.parametrize("height", range(4, 23))
@pytest.mark.parametrize(("mine", "theirs"), [(1, 3), (3, 1), (2, 3), (4, 3), (2, 4), (3, 3)])
def test_parts_that_share_rows_of_any_tensor_overlap(mine, theirs, height):
    for part in range(mine):
        own = set(rows_of(height, part, mine))
        sharing = [other for other in range(theirs) if own & set(rows_of(height, other, theirs))]
        assert set(sharing) <= set(overlapping(part, mine, theirs))
