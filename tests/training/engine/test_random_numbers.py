"""Random numbers in forward depend on seed, step, micro-batch and block, and on nothing else."""

import pytest
import torch
from torch import Tensor, nn

from tests.training.engine.small_networks import Head, loss, make_blocks, plan_of
from training import engine
from training.engine.engine import Engine

pytestmark = pytest.mark.usefixtures("one_thread")


def twice_the_same() -> engine.TensorBatch:
    """Two equal micro-batches."""
    images_nchw = torch.randn(2, 3, 12, 20, generator=torch.Generator().manual_seed(1))
    return engine.TensorBatch(((images_nchw, torch.tensor([0, 1])),) * 2)


def still(weights: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=0.0)


def losses(*, seed: int = 0, steps_done: int = 0, steps: int = 2) -> list[tuple[float, ...]]:
    """Losses of steps that change no weight."""
    blocks = make_blocks("dropout")
    one = Engine(blocks, plan_of(blocks, seed=seed, make_optimizer=still))
    one.steps_done = steps_done
    return [one.train_step(twice_the_same(), loss).losses for _ in range(steps)]


def test_every_micro_batch_of_every_step_draws_its_own():
    drawn = [value for step in losses(steps=3) for value in step]

    assert len(set(drawn)) == 6


def test_a_run_repeats_itself_and_goes_on_where_it_stopped():
    whole = losses(steps=3)

    assert losses(steps=3) == whole
    assert losses(steps_done=2, steps=1) == whole[2:]


def test_another_seed_draws_others():
    assert not {v for step in losses(seed=1) for v in step} & {v for step in losses(seed=2) for v in step}


def test_the_program_s_own_random_numbers_go_on_as_if_nothing_had_been_drawn():
    blocks = make_blocks("dropout")
    one = Engine(blocks, plan_of(blocks))
    before = torch.get_rng_state()

    one.train_step(twice_the_same(), loss)
    one.forward_only(twice_the_same())

    assert torch.equal(torch.get_rng_state(), before)


class AlwaysDropping(nn.Module):
    """Dropout that is also active in evaluation mode, as in Monte Carlo dropout."""

    def __init__(self, masks: list[Tensor]):
        super().__init__()
        self._masks = masks

    def forward(self, x_nchw: Tensor) -> Tensor:
        dropped_nchw = nn.functional.dropout(x_nchw, 0.5, training=True)
        self._masks.append(dropped_nchw != 0)
        return dropped_nchw


def test_blocks_and_micro_batches_draw_their_own_in_forward_only_too():
    masks: list[Tensor] = []
    blocks = [AlwaysDropping(masks), AlwaysDropping(masks), nn.Conv2d(3, 4, 1), Head(4)]
    one = Engine(blocks, plan_of(blocks))
    ones = engine.TensorBatch(((torch.ones(2, 3, 12, 20), torch.zeros(2)),) * 2)

    first, second = one.forward_only(ones)

    assert not torch.equal(first, second)
    assert not torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[1])  # the same mask twice would leave the same values as once
