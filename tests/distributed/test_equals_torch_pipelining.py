"""The same network and micro-batches under torch.distributed.pipelining give the same gradients and statistics.

torch adds the gradients of micro-batches one after the other: two micro-batches have only one possible sum, more agree
up to rounding. Its stages get metadata in advance, because otherwise its first step feeds noise to BatchNorm.
"""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from tests.distributed.launch import run_ranks
from tests.distributed.networks import small_resnet
from tests.distributed.problem import Case, Outcome, StepBatch, loss_sum, train
from training.engine.partition import partition, stage_ranges
from training.engine.ranks import Ranks

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
SAMPLES = 2

pytestmark = pytest.mark.usefixtures("one_thread")


Theirs = tuple[dict[str, Tensor], dict[str, Tensor], list[float]]
"""Gradients and buffers of this rank's stage, and the losses on the last stage."""


def one_step(strategy: str, num_stages: int, num_microbatches: int) -> Case:
    return Case(strategy, num_stages, ((SAMPLES,) * num_microbatches,))


def step_of_torch(ranks: Ranks, case: Case) -> Theirs:
    """Run one step of torch's schedule on this rank."""
    blocks = small_resnet()
    own = stage_ranges(partition([1.0] * len(blocks), case.num_stages), len(blocks))[ranks.rank]
    batch = StepBatch(case, 0)
    num_microbatches = len(batch.shapes)
    # A copy absorbs the noise: these BatchNorm layers are not the ones that are trained.
    taken = copy.deepcopy(nn.Sequential(*blocks[: own.start]))(torch.randn(batch.shapes[0])).detach()
    given = copy.deepcopy(nn.Sequential(*blocks[own.start : own.stop]))(taken).detach()
    module = nn.Sequential(OrderedDict((str(index), blocks[index]) for index in own))
    stage = PipelineStage(
        module,
        ranks.rank,
        case.num_stages,
        torch.device("cpu"),
        input_args=(taken.requires_grad_(ranks.rank > 0),),
        output_args=(given.requires_grad_(),),
    )
    schedule = SCHEDULES[case.strategy](
        stage,
        num_microbatches,
        loss_fn=lambda output, labels_n: loss_sum(output, labels_n) / (SAMPLES * num_microbatches),
        scale_grads=False,
    )
    inputs = [torch.cat([batch.inputs(k) for k in range(num_microbatches)])] if ranks.rank == 0 else []
    labels_n = torch.cat([batch.targets(k) for k in range(num_microbatches)])
    losses: list[Tensor] = []
    schedule.step(*inputs, target=labels_n if stage.is_last else None, losses=losses, return_outputs=False)
    gradients = {name: weight.grad.clone() for name, weight in module.named_parameters()}
    return gradients, dict(module.named_buffers()), [loss.item() for loss in losses]


def both(ranks: Ranks, cases: list[Case]) -> list[tuple[Theirs, Outcome]]:
    return [(step_of_torch(ranks, case), train(ranks, case, torch.clone)) for case in cases]


@pytest.mark.parametrize("num_stages", [2, 3])
def test_a_step_equals_that_of_torch_pipelining(num_stages):
    cases = [one_step(s, num_stages, n) for s in SCHEDULES for n in (2, 4, 6) if s == "gpipe" or n >= num_stages]
    by_rank = run_ranks(num_stages, both, cases)

    for index, case in enumerate(cases):
        for rank, results in enumerate(by_rank):
            (gradients, buffers, losses), ours = results[index]
            assert gradients.keys() == ours.gradients[0].keys()
            for name, theirs in gradients.items():
                assert_same_sum(ours.gradients[0][name], theirs, len(case.batches[0]), (case, name))
            for name, theirs in buffers.items():
                torch.testing.assert_close(ours.state[name], theirs, rtol=3e-7, atol=3e-7)
            assert losses == (list(ours.losses[0]) if rank == num_stages - 1 else [])


def assert_same_sum(mine: Tensor, theirs: Tensor, num_microbatches: int, what: object) -> None:
    if num_microbatches == 2:
        assert torch.equal(mine, theirs), what
    assert (mine - theirs).norm() <= 1e-6 * theirs.norm(), what
