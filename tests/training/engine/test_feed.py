"""Inputs are read ahead, in the order of the schedule, and nothing else changes."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.engine.small_networks import Head, loss, make_batch, make_blocks, plan_of
from training import engine
from training.engine.engine import Engine
from training.engine.feed import Feed

pytestmark = pytest.mark.usefixtures("one_thread")


class Gated:
    """Inputs that cannot be read until the gate is opened; records the requests."""

    def __init__(self) -> None:
        self.gates = [threading.Event() for _ in range(6)]
        self.started: list[Future[str]] = [Future() for _ in range(6)]

    def inputs(self, microbatch: int) -> Tensor:
        self.started[microbatch].set_result(threading.current_thread().name)
        assert self.gates[microbatch].wait(30)
        return torch.full((2,), float(microbatch))


def test_as_many_inputs_as_asked_for_are_on_their_way():
    gated, feed = Gated(), Feed(ahead=2)
    feed.follow(gated, [3, 1, 4, 5])

    names = [gated.started[microbatch].result(30) for microbatch in (3, 1)]
    assert all(name.startswith("inputs") for name in names)
    assert not gated.started[4].done()
    assert len(feed._coming) == 2, "more would lie in memory"

    for gate in gated.gates:
        gate.set()
    assert feed.take(gated, 3).tolist() == [3.0, 3.0]
    assert gated.started[4].result(30)
    assert [feed.take(gated, microbatch)[0].item() for microbatch in (1, 4, 5)] == [1.0, 4.0, 5.0]
    feed.close()


def test_without_reading_ahead_the_caller_reads():
    gated, feed = Gated(), Feed()
    gated.gates[2].set()
    feed.follow(gated, [2])

    assert not gated.started[2].done()
    feed.take(gated, 2)
    assert gated.started[2].result(0) == threading.current_thread().name


class Noting(engine.TensorBatch):
    """Inputs that record every request and its thread."""

    asked: list[tuple[int, str]]

    def inputs(self, microbatch: int) -> Tensor:
        self.asked.append((microbatch, threading.current_thread().name))
        return super().inputs(microbatch)


def noting(num_microbatches: int) -> Noting:
    batch = Noting(make_batch(num_microbatches).parts)
    object.__setattr__(batch, "asked", [])
    return batch


def trained(prefetch: int, announced: bool) -> tuple[list[Any], dict[str, Tensor], list[Noting]]:
    blocks = make_blocks("resnet")
    one = Engine(blocks, plan_of(blocks, "master", num_microbatches=4, prefetch=prefetch))
    batches = [noting(count) for count in (4, 3, 5)]
    results = [
        one.train_step(batch, loss, upcoming=after if announced else None)
        for batch, after in zip(batches, [*batches[1:], None], strict=True)
    ]
    one.close()
    return results, one.full_state_dict(), batches


@pytest.mark.parametrize(("prefetch", "announced"), [(0, False), (1, False), (1, True), (3, True)])
def test_reading_ahead_changes_no_bit_and_asks_for_each_input_once(prefetch, announced):
    expected, weights, _ = trained(0, announced=False)

    results, other, batches = trained(prefetch, announced)

    assert results == expected
    assert all(torch.equal(tensor, weights[name]) for name, tensor in other.items())
    for batch in batches:
        assert sorted(microbatch for microbatch, _ in batch.asked) == list(range(len(batch.parts)))
        assert all(name.startswith("inputs") for _, name in batch.asked) == bool(prefetch)


def test_the_first_inputs_of_the_next_step_are_read_while_this_one_computes():
    """They are requested while its last micro-batch is in progress."""
    blocks = [nn.Conv2d(3, 4, 1), Head(4)]
    one = Engine(blocks, plan_of(blocks, prefetch=1))
    this, upcoming = make_batch(2), Gated()
    upcoming.shapes = [(2, 3, 4, 4)] * 2  # type: ignore[attr-defined]
    seen = []

    def waiting_loss(logits_nk: Tensor, classes_n: Tensor) -> Tensor:
        if len(seen) == 1:
            upcoming.started[0].result(30)
        seen.append(True)
        return loss(logits_nk, classes_n)

    one.train_step(this, waiting_loss, upcoming=upcoming)  # type: ignore[arg-type]

    assert len(seen) == 2
    for gate in upcoming.gates:
        gate.set()
    one.close()


def test_a_batch_that_was_announced_and_never_comes_is_forgotten():
    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, prefetch=2))
    announced, other = noting(3), make_batch(2)
    one.train_step(make_batch(2), loss, upcoming=announced)

    result = one.train_step(other, loss)

    plain_blocks = make_blocks("relu-chain")
    plain = Engine(plain_blocks, plan_of(plain_blocks))
    plain.train_step(make_batch(2), loss)
    assert result == plain.train_step(make_batch(2), loss)
    one.close()


def test_what_reading_ahead_raises_comes_with_the_step_that_needs_it():
    class Damaged(engine.TensorBatch):
        def inputs(self, microbatch: int) -> Tensor:
            raise OSError(f"tile {microbatch} is damaged")

    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, prefetch=2))
    damaged = Damaged(make_batch(2).parts)
    one.train_step(make_batch(2), loss, upcoming=damaged)

    with pytest.raises(OSError, match="tile 0 is damaged"):
        one.train_step(damaged, loss)
    one.close()
