"""BatchNorm's running statistics equal those of an nn.BatchNorm2d fed the micro-batches one after the other."""

import pytest
import torch
from torch import nn

from tests.distributed.launch import run_ranks
from tests.distributed.networks import odd_norms_network, small_resnet
from tests.distributed.problem import Case, StepBatch, evenly, loss_sum, train
from training.engine.recompute import Recompute

pytestmark = pytest.mark.usefixtures("one_thread")

MANY = ((2, 1, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2, 1),)
"""One step only: a plain loop adds gradients in another order, so weights would differ in the next."""


def plain_loop(case: Case) -> dict[str, torch.Tensor]:
    """Weights and buffers after plain gradient accumulation."""
    model = nn.Sequential(*case.network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)
    for step in range(len(case.batches)):
        batch = StepBatch(case, step)
        for microbatch in range(len(batch.shapes)):
            loss = loss_sum(model(batch.inputs(microbatch)), batch.targets(microbatch))
            (loss / sum(case.batches[step])).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def train_all_with_state(ranks, cases):
    return [train(ranks, case, torch.clone).copies for case in cases]


@pytest.mark.parametrize(("num_stages", "data_parallel"), [(2, 1), (3, 1), (2, 2)])
def test_running_statistics_on_every_copy_are_those_of_a_plain_loop(num_stages, data_parallel):
    strategies = ["mp-basic", "master", "1f1b"] + ["chimera"] * (num_stages % 2 == 0)
    cases = [
        Case(strategy, num_stages, batches, data_parallel, recompute, network=network)
        for strategy in strategies
        # Two micro-batches have only one possible sum, so three steps give the same weights.
        for batches, recompute in ((MANY, Recompute()), (MANY, Recompute(1)), (evenly(2), Recompute(2)))
        for network in (small_resnet, odd_norms_network)
    ]
    by_rank = run_ranks(num_stages * data_parallel, train_all_with_state, cases)

    for index, case in enumerate(cases):
        plain = plain_loop(case)
        for copies in (results[index] for results in by_rank):
            for name, mine in ((name, mine) for held in copies.values() for name, mine in held.items()):
                if name.endswith("num_batches_tracked"):
                    assert mine == plain[name] == sum(map(len, case.batches)), (case, name)
                elif "running" in name:
                    torch.testing.assert_close(mine, plain[name], rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("recompute", [Recompute(1), Recompute(2), Recompute(1, prefix=(3,))])
def test_recompute_counts_a_microbatch_once(recompute):
    once = train(None, Case("single", 1, evenly(3)), torch.clone)
    again = train(None, Case("single", 1, evenly(3), recompute=recompute), torch.clone)

    tracked = [tensor for name, tensor in again.state.items() if name.endswith("num_batches_tracked")]
    assert len(tracked) == 10
    assert {int(tensor) for tensor in tracked} == {9}
    assert all(torch.equal(again.state[name], tensor) for name, tensor in once.state.items())
