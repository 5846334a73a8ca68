"""Sub-graphs on several ranks: the bits of virtual ones, the numbers of the plain network, the predicted bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.distributed.launch import run_ranks
from tests.distributed.networks import branching_network
from tests.distributed.pairwise import cover
from tests.distributed.part_cases import case_of
from tests.distributed.problem import differences, evenly, train
from tests.distributed.test_parts import _kept, _train_both, farthest
from training.engine.recompute import Recompute

pytestmark = pytest.mark.usefixtures("one_thread")

FACTORS: Mapping[str, tuple[Any, ...]] = {
    "layout": (
        ("single", 1, (2,)), ("single", 1, (3,)), ("single", 2, (2,)), ("master", 1, (2, 2)), ("1f1b", 1, (2, 1)),
        ("gpipe", 1, (1, 3)), ("1f1b", 1, (2, 2)), ("gpipe", 1, (3, 1)),
    ),
    "recompute": (Recompute(), Recompute(1), Recompute(2, rest="keep")),
    "channels_last": (False, True),
    "batches": (evenly(2), evenly(3, 1), ((2, 2, 1), (2,), (1, 1, 1, 1, 1))),
    "mixed_shapes": (False, True),
    "then_infer": (False, True),
    "strict": (False, True),
    "clip_norm": (None, 0.5),
}  # fmt: skip
CASES = [case_of(split="branches", network=branching_network, **chosen) for chosen in cover(FACTORS, lambda _: True)]
TWO = case_of(layout=("single", 1, (2,)), split="branches", network=branching_network, batches=evenly(2))


@pytest.mark.parametrize("num_ranks", [4, 3, 2])
def test_sub_graphs_on_ranks_give_the_bits_of_virtual_ones_and_the_numbers_of_the_plain_network(num_ranks):
    cases = [case for case in CASES if case.num_ranks == num_ranks]
    alike = [case for case in cases if len(set(case.parts)) == 1]
    doubles = [replace(case, double=True) for case in cases]
    by_rank = run_ranks(num_ranks, _train_both, alike, doubles)

    for index, case in enumerate(alike):
        virtual = train(None, case.as_single)
        assert differences([bits[index] for bits, _ in by_rank], virtual) == [], case
    for index, case in enumerate(doubles):
        plain = train(None, case.whole, _kept)
        assert max(farthest(numbers[index], plain) for _, numbers in by_rank) < 1e-12, case
