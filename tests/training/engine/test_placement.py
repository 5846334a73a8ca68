"""Placement of stages on ranks, for any table."""

import pytest

from training.engine.placement import Placement, over_groups


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
    with pytest.raises(ValueError, match="too many values"):
        placement.rank_of(0, 1)
