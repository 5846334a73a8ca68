"""Agreement between ranks before their first step: one set of weights, and one timeout."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.distributed.launch import run_ranks
from tests.distributed.networks import NUM_CLASSES
from tests.distributed.problem import Case, StepBatch, loss_sum
from training.engine.engine import Engine
from training.engine.plan import make_plan
from training.engine.ranks import Ranks, alone
from training.models.resnet_v2 import resnet_v2_blocks

pytestmark = pytest.mark.usefixtures("one_thread")

CASE = Case("master", 2, ((2, 2, 1),))
TIMEOUT_S = 77.0


def train_from_own_seed(ranks: Ranks, num_stages: int) -> dict[str, torch.Tensor]:
    """Train one step from weights initialised by this rank."""
    torch.manual_seed(100 + ranks.rank)
    blocks: list[nn.Module] = resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)
    plan = make_plan("master", costs=[1.0] * len(blocks), num_stages=num_stages, num_microbatches=3)
    engine = Engine(blocks, plan, ranks=ranks)
    engine.train_step(StepBatch(CASE, 0), loss_sum)
    return engine.full_state_dict()


def test_ranks_that_were_seeded_differently_go_on_from_the_weights_of_the_first():
    by_rank = run_ranks(2, train_from_own_seed, 2)

    expected = train_from_own_seed(alone(), 1)
    for state in by_rank:
        assert [name for name, tensor in state.items() if not torch.equal(tensor, expected[name])] == []


def timeouts(ranks: Ranks) -> list[timedelta]:
    groups = [group for group in (ranks.data, ranks.control, dist.group.WORLD) if group is not None]
    return [group._get_backend(torch.device("cpu")).options._timeout for group in groups]


def test_all_channels_wait_as_long_as_they_were_told():
    assert run_ranks(2, timeouts, timeout_s=TIMEOUT_S) == [[timedelta(seconds=TIMEOUT_S)] * 3] * 2
