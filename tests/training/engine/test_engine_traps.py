"""Traps for users: a step that fails, in-place operations, shared weights, a malformed batch."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.launch import run_ranks
from tests.training.engine.small_networks import HW, Head, loss, make_batch, make_blocks, plan_of
from training import engine
from training.engine.engine import Engine
from training.engine.memory import LiveBytes
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute
from training.engine.saved import Saver

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGE_BYTES = 2 * 3 * HW[0] * HW[1] * 4


class Broken(engine.TensorBatch):
    """Batch whose last tile cannot be read."""

    def inputs(self, microbatch: int) -> Tensor:
        if microbatch == len(self.parts) - 1:
            raise OSError("the file is damaged")
        return super().inputs(microbatch)


@pytest.mark.parametrize("strategy", ["single", "gpipe", "master"])
def test_after_a_step_that_failed_there_is_no_next(strategy):
    """Half of the failed step's sums would go into the next update."""
    blocks = make_blocks("resnet")
    one = Engine(blocks, plan_of(blocks, strategy))

    with pytest.raises(OSError, match="damaged"):
        one.train_step(Broken(make_batch(5).parts), loss)
    with pytest.raises(RuntimeError, match="an earlier step of this engine failed"):
        one.train_step(make_batch(4), loss)


def test_a_graph_that_is_thrown_away_counts_no_longer():
    counter = LiveBytes(enabled=True)
    with Saver("keep", counter).watch():
        result = torch.randn(10, requires_grad=True).exp()

    assert counter.now == 40
    del result
    assert counter.now == 0


class Darken(nn.Module):
    def forward(self, x_nchw: Tensor) -> Tensor:
        return x_nchw.mul_(0.5)


def test_a_block_that_changes_its_input_in_place_is_not_recomputed_with_other_numbers():
    blocks = [Darken(), nn.Conv2d(3, 4, 1), Head(4)]

    with pytest.raises(ValueError, match="a block of stage 0 changes its input in place, so its forward cannot be"):
        Engine(blocks, plan_of(blocks, recompute=Recompute(2))).train_step(make_batch(1), loss)


@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_a_weight_in_many_places_has_the_same_gradient_in_any_segments(every):
    weights = []
    for recompute in (Recompute(), Recompute(every)):
        torch.manual_seed(0)
        shared = nn.Conv2d(3, 3, 3, padding=1)
        blocks = [shared, nn.Tanh(), shared, nn.Tanh(), shared, Head(3)]
        plan = plan_of(blocks, recompute=recompute, make_optimizer=lambda weights: torch.optim.SGD(weights, lr=1.0))
        Engine(blocks, plan).train_step(make_batch(4), loss)
        weights.append(shared.weight.detach())

    assert torch.equal(*weights)


def test_only_the_stage_with_the_loss_keeps_the_output_of_its_last_recomputed_segment():
    """A boundary is as large as a tile: gpipe would keep one more for each micro-batch."""
    blocks = [nn.Conv2d(3, 3, 1), nn.Tanh(), nn.Tanh(), Head(3)]
    plan = plan_of(blocks, "gpipe", num_stages=2, num_microbatches=4, recompute=Recompute(1))

    first, _ = predict_memory(blocks, loss, make_batch(4), plan)

    # The inputs of both blocks for every micro-batch; one output is in transit.
    assert first.after_bytes[3] == (4 * 2 + 1) * IMAGE_BYTES


def received_gradients_alive(ranks: Ranks, num_microbatches: int) -> list[bool]:
    """Whether the gradient from the next stage is still alive when the earlier of two segments is recomputed."""

    class Watching(nn.Module):
        def forward(self, x_nchw: Tensor) -> Tensor:
            if torch.is_grad_enabled() and received:
                alive.append(received[-1]() is not None)
            return x_nchw * 2

    alive: list[bool] = []
    received: list[weakref.ref[object]] = []
    blocks = [nn.Sequential(nn.Conv2d(3, 3, 1), Watching()), nn.Conv2d(3, 3, 1), nn.Tanh(), Head(3)]
    one = Engine(blocks, plan_of(blocks, "gpipe", num_stages=2, recompute=Recompute(1)), ranks=ranks)
    exchange = one._transport.exchange

    def watched(gives, takes):
        boundaries = exchange(gives, takes)
        if ranks.rank == 0 and boundaries:
            received.append(weakref.ref(boundaries[0].value[0]))
        return boundaries

    one._transport.exchange = watched
    one.train_step(make_batch(num_microbatches), loss)
    return alive


def test_a_received_gradient_goes_as_soon_as_it_has_been_used():
    """In line with the count: not at the end of the stage's backward."""
    assert run_ranks(2, received_gradients_alive, 2) == [[False, False], []]


def test_a_split_batch_does_not_count_as_a_whole():
    blocks = make_blocks("relu-chain")
    batch = make_batch(8)
    split = engine.split(
        torch.cat([images for images, _ in batch.parts]), batch.targets(0).repeat(8), microbatch_size=2
    )
    peaks = []
    for batch_used in (batch, split):
        one = Engine(blocks, plan_of(blocks), count_bytes=True)
        one.train_step(batch_used, loss)
        peaks.append(one.live_bytes.peak)

    assert peaks[1] - peaks[0] < 200  # targets


@pytest.mark.parametrize(("num_inputs", "num_targets", "size"), [(4, 3, 4), (4, 5, 2), (0, 0, 2), (4, 4, 0)])
def test_a_careless_split_is_refused(num_inputs, num_targets, size):
    message = f"got {num_inputs} inputs, {num_targets} targets and microbatch_size = {size}; give one or more samples"

    with pytest.raises(ValueError, match=message):
        engine.split(torch.ones(num_inputs, 3), torch.ones(num_targets), microbatch_size=size)


def test_a_loss_per_sample_is_refused():
    blocks = make_blocks("relu-chain")

    with pytest.raises(TypeError, match=r"must return a scalar tensor.*; got a tensor of shape \(2,\)"):
        Engine(blocks, plan_of(blocks)).train_step(make_batch(1), lambda logits_nk, _: logits_nk.sum(1))


def test_a_tuple_at_the_end_is_refused_in_forward_only_too():
    blocks = make_blocks("unet")[:2]

    with pytest.raises(TypeError, match="one tensor for the loss, got a tuple of 2"):
        Engine(blocks, plan_of(blocks)).forward_only(make_batch(1))


def test_an_engine_that_is_let_go_of_lets_go_of_its_network():
    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, recompute=Recompute(rest="norm")), count_bytes=True)
    one.train_step(make_batch(1), loss)
    block = weakref.ref(blocks[0])

    del blocks, one
    gc.collect()

    assert block() is None
