"""The processes of one training run and the two channels between them.

`data` carries what is large: boundaries, gradients, weights. It is one communicator over all ranks, used only in groups
of messages whose order check.py has proven, because NCCL promises nothing more. `control` is always gloo in CPU memory:
how messages are laid out, losses, states. Both are warmed at once with a tiny collective: backends connect lazily, and
would otherwise do it crosswise.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    num_ranks: int
    timeout_s: float
    """A peer that is silent for longer counts as lost."""
    wire: torch.device
    """Where tensors must lie to be sent over `data`: cpu for gloo, the accelerator for nccl."""
    data: dist.ProcessGroup | None = None
    control: dist.ProcessGroup | None = None
    """None for a process on its own."""

    def close(self) -> None:
        """Leave the process groups; the other ranks do the same."""
        if self.num_ranks > 1:
            dist.destroy_process_group()


def alone() -> Ranks:
    """A process on its own, for the strategy `single`; needs no torch.distributed."""
    return Ranks(0, 1, timeout_s=0.0, wire=torch.device("cpu"))


def connect_ranks(
    *,
    timeout_s: float,
    device: torch.device | None = None,
    backend: Literal["gloo", "nccl"] | None = None,
    init_method: str = "env://",
    rank: int = -1,
    num_ranks: int = -1,
) -> Ranks:
    """Join the other processes of the run. Every rank calls this once, at the same point.

    Args:
        timeout_s: how long any message may take; it must exceed the longest wait of a rank, about one whole step.
        device: of this process; the CPU if left out.
        backend: what large messages go over; None takes nccl between GPUs and gloo else. NCCL needs a GPU for each
            rank: ranks that share one take "gloo", and messages go through pinned host memory.
        init_method: "env://" under torchrun; a "file://" address needs `rank` and `num_ranks` too.

    Raises:
        ValueError: the timeout is not positive and finite.
    """
    if not 0 < timeout_s < float("inf"):
        raise ValueError(f"timeout_s must be positive and finite, got {timeout_s}; 600 suits most runs")
    device = device or torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where torch puts what it makes of its own accord
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    wire = device if backend == "nccl" else torch.device("cpu")
    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", init_method=init_method, timeout=timeout, rank=rank, world_size=num_ranks)
    data = dist.new_group(timeout=timeout, backend=backend)
    control = dist.new_group(timeout=timeout, backend="gloo")
    dist.all_reduce(torch.zeros(1, device=wire), group=data)
    dist.all_reduce(torch.zeros(1), group=control)
    return Ranks(dist.get_rank(), dist.get_world_size(), timeout_s, wire, data, control)
