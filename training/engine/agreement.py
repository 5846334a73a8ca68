"""Facts all ranks must share before the first update: losses, norms, and whether every number of the step is finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.engine.executor import Step
from training.engine.replica_sync import StageSync
from training.engine.transport import Transport
from training.foundation.errors import GemslideError


class NonFiniteError(GemslideError):
    """A loss or a gradient is infinite or not a number. No weight has changed; the engine can do the next step."""

    code = "non_finite"
    microbatch: int | None = None
    """Index of the first micro-batch at fault; None where only the sum is not finite."""


@dataclass(frozen=True)
class Fault:
    """A number that is not finite."""

    text: str
    microbatch: int | None = None

    def __str__(self) -> str:
        return self.text


class Agreement:
    """Exactly the same numbers on every rank: each comes from one rank, and their order is fixed."""

    def __init__(self, step: Step, losses: Sequence[float], flags: Sequence[float], squares: Sequence[float]) -> None:
        self._step = step
        self.losses = tuple(losses)
        self._flags = flags
        self.norm = math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
        """Norm of all gradients together."""

    def loss_fault(self) -> Fault | None:
        """The first loss that is not finite, described for people."""
        for microbatch, loss in enumerate(self.losses):
            if not math.isfinite(loss):
                place = self._place(microbatch, self._step.schedule.num_stages - 1)
                return Fault(f"the loss of {place} is {loss}", microbatch)
        return None

    def gradient_fault(self) -> Fault | None:
        """The first gradients that are not finite, in the order of backward, described for people."""
        num_stages = self._step.schedule.num_stages
        for microbatch in range(len(self.losses)):
            for stage in reversed(range(num_stages)):
                if self._flags[microbatch * num_stages + stage]:
                    return Fault(f"gradients of {self._place(microbatch, stage)} are not finite", microbatch)
        return None if math.isfinite(self.norm) else Fault("the sum of the gradients is not finite")

    def _place(self, microbatch: int, stage: int) -> str:
        schedule = self._step.schedule
        rank = schedule.placement.rank_of(schedule.replica_of(microbatch), stage)
        return f"micro-batch {microbatch} in stage {stage} on rank {rank}"


def agree(
    step: Step, syncs: Mapping[int, StageSync], weights: Sequence[Sequence[str]], transport: Transport
) -> Agreement:
    """Share this rank's numbers; every rank calls it. Synchronises with the device once.

    Args:
        syncs: one for each stage held here.
        weights: names of the trained ones of every stage, in one order on all ranks.
    """
    num_losses, num_stages = len(step.shapes), len(weights)
    num_flags = num_losses * num_stages
    known: dict[int, Tensor] = dict(step.results)
    flags: dict[int, Tensor] = {}
    for stage, sync in syncs.items():
        flags |= {num_losses + k * num_stages + stage: checksum for k, checksum in sync.copy.checksums.items()}
        start = num_losses + num_flags + sum(map(len, weights[:stage]))
        squares = sync.squared_norms()
        known |= {start + index: squares[name] for index, name in enumerate(weights[stage]) if name in squares}
    numbers = torch.zeros(num_losses + num_flags + sum(map(len, weights)), dtype=torch.float64)
    values = _on_cpu([*known.values(), *flags.values()])
    numbers[list(known)] = values[: len(known)]
    numbers[list(flags)] = (~values[len(known) :].isfinite()).double()
    shared = transport.sum_over_ranks(numbers, during="sharing the losses").tolist()
    return Agreement(
        step, shared[:num_losses], shared[num_losses : num_losses + num_flags], shared[num_losses + num_flags :]
    )


def _on_cpu(values: list[Tensor]) -> Tensor:
    return torch.stack([value.double() for value in values]).cpu() if values else torch.empty(0, dtype=torch.float64)
