"""Under a memory limit set on each process, GEMS-MASTER trains what one process cannot hold."""

import ctypes
import resource
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.launch import run_ranks
from training.engine import Engine, Plan, make_plan
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mapped memory on Linux only")

SIDE_HW = (260, 1024)
CHANNELS = 8
NUM_BLOCKS = 24
"""Number of blocks, each of which keeps one activation of 8.5 MB."""
NUM_MICROBATCHES = 4
STEPS = 2
M_MMAP_THRESHOLD = -3
"""Parameter of the C library's mallopt."""
LIMIT_BYTES = 150_000_000
"""Memory growth allowed after the weights are allocated: about two thirds of what one process would need."""


def blocks() -> list[nn.Module]:
    torch.manual_seed(5)
    layers = [nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 1), nn.Tanh()) for _ in range(NUM_BLOCKS)]
    return [*layers, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())]


def loss(outputs_nk: Tensor, labels_n: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs_nk, labels_n, reduction="sum")


class GeneratedBatch:
    """Batch generated on demand, so that it is never held whole."""

    def __init__(self, num_microbatches: int):
        self.shapes = [(1, CHANNELS, *SIDE_HW)] * num_microbatches

    def inputs(self, microbatch: int) -> Tensor:
        return torch.randn(self.shapes[microbatch], generator=torch.Generator().manual_seed(microbatch))

    def targets(self, microbatch: int) -> Tensor:
        return torch.tensor([microbatch % CHANNELS])


def plan_of(strategy: str, num_stages: int) -> Plan:
    return make_plan(strategy, costs=[1.0] * (NUM_BLOCKS + 1), num_stages=num_stages, num_microbatches=NUM_MICROBATCHES)


def train(
    ranks: Ranks, strategy: str, num_microbatches: int, limit_bytes: int | None
) -> tuple[str, dict[str, Tensor], int]:
    """Error message, weights after the steps, and peak live bytes; a task for `run_ranks`."""
    trained = Engine(blocks(), plan_of(strategy, ranks.num_ranks), ranks=ranks, count_bytes=True)
    if limit_bytes is not None:
        _limit_growth(limit_bytes)
    try:
        for _ in range(STEPS):
            trained.train_step(GeneratedBatch(num_microbatches), loss)
    except RuntimeError as error:
        if ranks.num_ranks > 1:
            raise
        return str(error), {}, 0
    return "", trained.full_state_dict(), trained.live_bytes.peak


def _limit_growth(limit_bytes: int) -> None:
    """Allow this process at most `limit_bytes` of memory beyond its current use.

    Freed memory is returned at once from now on, so that the limit applies to current use, not to past use.
    """
    assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1_000_000) == 1
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    has_bytes = int(status["VmData"].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (has_bytes + limit_bytes, resource.RLIM_INFINITY))


def test_one_process_under_the_limit_cannot_hold_a_single_microbatch():
    (predicted,) = predict_memory(blocks(), loss, GeneratedBatch(1), plan_of("single", 1))
    assert predicted.peak_bytes > 1.4 * LIMIT_BYTES

    ((trouble, _, _),) = run_ranks(1, train, "single", 1, LIMIT_BYTES)

    assert "can't allocate memory" in trouble


def test_master_under_the_same_limit_trains_a_whole_batch_to_the_same_bits():
    batch = GeneratedBatch(NUM_MICROBATCHES)
    predicted = [memory.peak_bytes for memory in predict_memory(blocks(), loss, batch, plan_of("master", 4))]
    assert max(predicted) < 0.6 * LIMIT_BYTES

    limited = run_ranks(4, train, "master", NUM_MICROBATCHES, LIMIT_BYTES)
    ((_, free, _),) = run_ranks(1, train, "single", NUM_MICROBATCHES, None)

    assert [peak for _, _, peak in limited] == predicted
    for _, state, _ in limited:
        assert state.keys() == free.keys()
        assert all(free[name].equal(tensor) for name, tensor in state.items())
