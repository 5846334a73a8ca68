"""The functions for people who bring their own list of blocks.

    from training import engine

    blocks = [...]                                             # run one after the other; tuples may pass between them
    plan = engine.make_plan("master", num_stages=2, num_microbatches=4, costs=[1.0] * len(blocks))
    for images, labels in data:
        batch = engine.split(images, labels, microbatch_size=8)
        print(engine.train_step(blocks, loss, batch, plan).loss)      # loss: (output, labels) -> sum over the samples
    outputs = engine.forward_only(blocks, batch, plan)                # evaluation mode; on every rank
    engine.gather(blocks, plan)                                       # all weights on every rank

Start it with `torchrun --nproc-per-node 2 program.py`; every rank runs the same lines. Same seed and same micro-batches
give the same weights, bit for bit, under every strategy, any cuts and any number of ranks: on the CPU and on GPUs with
deterministic kernels, with the same number of threads per rank and the same micro-batch size, for networks that draw
no random numbers in forward. docs/engine.md says how it works and when not to use it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from training.engine.engine import Engine, StepResult
from training.engine.executor import Batch, Loss
from training.engine.plan import Plan
from training.engine.ranks import Ranks, alone, connect_ranks


@dataclass(frozen=True)
class TensorBatch:
    """A batch that lies in memory, cut into micro-batches along the first dimension."""

    parts: tuple[tuple[Tensor, Any], ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(inputs.shape) for inputs, _ in self.parts]

    def inputs(self, microbatch: int) -> Tensor:
        return self.parts[microbatch][0]

    def targets(self, microbatch: int) -> Any:
        return self.parts[microbatch][1]


def split(inputs: Tensor, targets: Tensor, *, microbatch_size: int) -> TensorBatch:
    """Copy a batch into micro-batches; the last may be smaller. Any class with the methods of `Batch` will do too.

    Raises:
        ValueError: there are no samples, or not a target for each, or the size is less than 1.
    """
    if not 0 < len(inputs) == len(targets) or microbatch_size < 1:
        raise ValueError(
            f"got {len(inputs)} inputs, {len(targets)} targets and microbatch_size = {microbatch_size}; give one or "
            "more samples, a target for each, and micro-batches of 1 or more"
        )
    parts = zip(torch.split(inputs, microbatch_size), torch.split(targets, microbatch_size), strict=True)
    return TensorBatch(tuple((some.clone(), wanted.clone()) for some, wanted in parts))


def train_step(blocks: Sequence[nn.Module], loss: Loss, batch: Batch, plan: Plan) -> StepResult:
    """One optimizer step. Every rank calls it with equal arguments.

    The first call takes the blocks over and connects the ranks. On each rank the blocks of its own stage are trained
    in place; `gather` brings the others up to date.

    Args:
        loss: (output, targets) -> the sum of the loss over the samples of a micro-batch; the engine divides it by
            the samples of the whole batch.

    Raises:
        LostPeerError: another rank is gone or too slow.
        ValueError: blocks, plan and number of ranks do not fit each other.
    """
    return engine_of(blocks, plan).train_step(batch, loss)


def forward_only(blocks: Sequence[nn.Module], batch: Batch, plan: Plan) -> list[Tensor]:
    """Outputs of the network in evaluation mode by micro-batch, on every rank. See `train_step`."""
    return engine_of(blocks, plan).forward_only(batch)


def gather(blocks: Sequence[nn.Module], plan: Plan) -> None:
    """Give the blocks on every rank the weights and buffers that the ranks have trained."""
    nn.Sequential(*blocks).load_state_dict(engine_of(blocks, plan).full_state_dict())


def connect(*, timeout_s: float = 600.0, device: torch.device | None = None) -> None:
    """Join the other ranks now, to choose how long a message may take; the first step does it otherwise."""
    global _ranks
    if _ranks is not None:
        raise RuntimeError("this process has joined the other ranks already; call `close` first")
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    _ranks = connect_ranks(timeout_s=timeout_s, device=device) if several else alone()


def close() -> None:
    """Leave the other ranks and release all engines; the end of a program that used the functions of this module."""
    global _ranks
    if _ranks is not None:
        _ranks.close()
    _ranks = None
    _engines.clear()


_engines: dict[Plan, tuple[Engine, list[nn.Module]]] = {}
_ranks: Ranks | None = None


def engine_of(blocks: Sequence[nn.Module], plan: Plan) -> Engine:
    """The engine of a plan, made at its first use and kept until `close`: for learning rates, states, memory."""
    if _ranks is None:
        connect(device=plan.device)
    if plan not in _engines:
        _engines[plan] = (Engine(blocks, plan, ranks=_ranks), list(blocks))
    engine, known = _engines[plan]
    if len(known) != len(blocks) or any(mine is not theirs for mine, theirs in zip(known, blocks, strict=True)):
        raise ValueError("this plan trains other blocks already; make a plan for each network")
    return engine
