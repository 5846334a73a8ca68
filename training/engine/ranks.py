"""The processes of one training run and the channels between them.

One process group per lane, so that on each channel between two ranks messages go one way and arrive in the order in
which they were sent: no message needs a tag, and no rank waits to send what the other must take later (check.py plays
this through). All groups are made in the same order on every rank and warmed at once with one tiny collective, because
backends connect lazily and would otherwise do it crosswise.
"""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from training.engine.schedule import Action, Op

NUM_LANES = 4
"""Forward and backward, of normal and of mirrored replicas."""
SYNC = NUM_LANES
"""Lane of gradient sums, weights and whatever concerns all ranks."""


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    num_ranks: int
    timeout_s: float
    """A peer that is silent for longer counts as lost."""
    wire: torch.device
    """Where tensors must lie to be sent: cpu for gloo, the accelerator for nccl."""
    groups: tuple[dist.ProcessGroup, ...]
    """By lane; empty for a process on its own."""

    @property
    def sync_group(self) -> dist.ProcessGroup | None:
        return self.groups[SYNC] if self.groups else None

    def close(self) -> None:
        """Leave the process groups; the other ranks do the same."""
        if self.num_ranks > 1:
            dist.destroy_process_group()


def lane_of(action: Action, *, num_directions: int) -> int:
    """The lane on which the result of a forward or backward goes to its neighbour."""
    return 2 * (action.replica % num_directions) + int(action.op is Op.B)


def alone() -> Ranks:
    """A process on its own, for the strategy `single`; needs no torch.distributed."""
    return Ranks(0, 1, timeout_s=0.0, wire=torch.device("cpu"), groups=())


def connect_ranks(
    *,
    timeout_s: float,
    device: torch.device | None = None,
    init_method: str = "env://",
    rank: int = -1,
    num_ranks: int = -1,
) -> Ranks:
    """Join the other processes of the run. Every rank calls this once, at the same point.

    Args:
        timeout_s: how long any message may take; it must exceed the longest wait of a rank, about one whole step.
        device: of this process. CPU ranks (the default) talk over gloo, CUDA ranks over nccl.
        init_method: "env://" under torchrun; a "file://" address needs `rank` and `num_ranks` too.

    Raises:
        ValueError: the timeout is not positive and finite.
    """
    if not 0 < timeout_s < float("inf"):
        raise ValueError(f"timeout_s must be positive and finite, got {timeout_s}; 600 suits most runs")
    wire = device or torch.device("cpu")
    if wire.type == "cuda":
        torch.cuda.set_device(wire)  # where torch puts what it sends of its own accord
    timeout = timedelta(seconds=timeout_s)
    backend = "nccl" if wire.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=init_method, timeout=timeout, rank=rank, world_size=num_ranks)
    groups = [dist.new_group(timeout=timeout) for _ in range(NUM_LANES + 1)]
    for group in groups:
        dist.all_reduce(torch.zeros(1, device=wire), group=group)
    return Ranks(dist.get_rank(), dist.get_world_size(), timeout_s=timeout_s, wire=wire, groups=tuple(groups))
