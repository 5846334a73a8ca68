"""A run saved under one strategy goes on under another as if nothing had happened."""

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.launch import run_ranks
from tests.distributed.problem import Case, images_nchw, labels_n, make_engine
from training.engine.engine import Engine
from training.engine.ranks import Ranks

Saved = tuple[dict[str, Tensor], dict[str, Tensor]]
NUM_MICROBATCHES = 4


pytestmark = pytest.mark.usefixtures("one_thread")


def train_step(engine: Engine, step: int) -> None:
    def loss(logits_nk: Tensor, microbatch: int) -> Tensor:
        return nn.functional.cross_entropy(logits_nk, labels_n(step, microbatch)) / NUM_MICROBATCHES

    engine.train_step(lambda microbatch: images_nchw(step, microbatch), loss)


def train_steps(ranks: Ranks | None, strategy: str, steps: range, saved: Saved | None) -> Saved:
    """Go on from `saved`, if given, and save again."""
    engine = make_engine(ranks, Case(strategy, NUM_MICROBATCHES, channels_last=True), [])
    if saved is not None:
        weights, remembered = saved
        engine.load_full_state_dict(weights)
        engine.load_full_optimizer_state(remembered)
    for step in steps:
        train_step(engine, step)
    return engine.full_state_dict(), engine.full_optimizer_state()


def assert_equal(left: Saved, right: Saved) -> None:
    for mine, theirs in zip(left, right, strict=True):
        assert mine.keys() == theirs.keys()
        assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


def test_saved_by_three_ranks_resumed_by_two_equals_one():
    uninterrupted = train_steps(None, "single", range(3), None)

    after_one = run_ranks(3, train_steps, "master", range(1), None)
    after_two = run_ranks(2, train_steps, "mp-basic", range(1, 2), after_one[2])
    after_three = run_ranks(2, train_steps, "master", range(2, 3), after_two[1])

    assert_equal(after_one[0], after_one[1])
    assert_equal(after_three[0], uninterrupted)
