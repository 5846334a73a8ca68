"""A run saved under one strategy resumes under another as if uninterrupted."""

import pytest
import torch
from torch import Tensor

from tests.distributed.launch import run_ranks
from tests.distributed.problem import Case, StepBatch, evenly, loss_sum, make_engine
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute

Saved = tuple[dict[str, Tensor], dict[str, Tensor]]
UNEVEN = ((2, 2, 2, 2, 1), (2, 2, 2, 2), (2, 1, 2))

pytestmark = pytest.mark.usefixtures("one_thread")


def train_steps(ranks: Ranks | None, case: Case, steps: range, saved: Saved | None) -> Saved:
    """Resume from `saved`, if given, and save again."""
    engine = make_engine(ranks, case)
    if saved is not None:
        weights, remembered = saved
        engine.load_full_state_dict(weights)
        engine.load_full_optimizer_state(remembered)
    for step in steps:
        engine.train_step(StepBatch(case, step), loss_sum)
    return engine.full_state_dict(), engine.full_optimizer_state()


def assert_equal(left: Saved, right: Saved) -> None:
    for mine, theirs in zip(left, right, strict=True):
        assert mine.keys() == theirs.keys()
        assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


def strategies(batches: tuple[tuple[int, ...], ...]) -> list[Case]:
    """Strategies, one per step, that differ in everything that must not matter."""
    return [
        Case("master", 3, batches, channels_last=True, recompute=Recompute(1)),
        Case("chimera", 2, batches, data_parallel=2, channels_last=True),
        Case("single", 1, batches, data_parallel=2, channels_last=True, recompute=Recompute(2)),
    ]


@pytest.mark.parametrize(("order", "batches"), [((0, 1, 2), UNEVEN), ((2, 0, 1), evenly(4))])
def test_saved_under_one_strategy_resumed_under_others_equals_one_process(order, batches):
    cases = [strategies(batches)[index] for index in order]
    uninterrupted = train_steps(None, cases[0].as_single, range(3), None)

    saved = None
    for step, case in enumerate(cases):
        by_rank = run_ranks(case.num_stages * case.data_parallel, train_steps, case, range(step, step + 1), saved)
        for other in by_rank[1:]:
            assert_equal(other, by_rank[0])
        saved = by_rank[-1]

    assert_equal(saved, uninterrupted)


def test_a_checkpoint_of_one_process_is_resumed_by_four_ranks():
    case = Case("master", 2, evenly(4), data_parallel=2)
    saved = train_steps(None, case.as_single, range(1), None)

    resumed = run_ranks(4, train_steps, case, range(1, 3), saved)

    assert_equal(resumed[3], train_steps(None, case.as_single, range(3), None))
