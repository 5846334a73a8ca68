"""The device of a rank, and the memory that it may take there."""

from __future__ import annotations

import os
import resource
from typing import Literal

import psutil
import torch

LOCAL_RANK, LOCAL_RANKS = "LOCAL_RANK", "LOCAL_WORLD_SIZE"
"""Environment variables of a rank: its number on this machine, and how many there are."""
ROOM = 0.9
"""Fraction of the memory for live bytes, weights, gradients and optimizer together; workspaces take the rest."""


def local_ranks() -> int:
    """Ranks of this run on this machine."""
    return int(os.environ.get(LOCAL_RANKS, "1"))


def device_here(num_local: int | None = None) -> tuple[torch.device, Literal["gloo", "nccl"]]:
    """The device of this rank, and the transport of its messages.

    A rank has the GPU with its number, and gloo where several share one, which NCCL does not allow; without GPUs, the
    CPU and gloo.

    Args:
        num_local: ranks on this machine; None for those that were started.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu"), "gloo"
    num_gpus, local_rank = torch.cuda.device_count(), int(os.environ.get(LOCAL_RANK, "0"))
    is_shared = num_gpus < (num_local or local_ranks())
    return torch.device("cuda", local_rank % num_gpus), "gloo" if is_shared else "nccl"


def backend_of(wire: torch.device) -> str:
    """Name of the transport whose messages are on a device."""
    return "nccl" if wire.type == "cuda" else "gloo"


def sharing(device: torch.device, num_local: float) -> float:
    """Ranks that share one memory if so many are on this machine."""
    memories = torch.cuda.device_count() if device.type == "cuda" else 1
    return max(1.0, num_local / memories)


def limit_bytes(device: torch.device, sharing: float = 1.0) -> int:
    """Most memory that this process may take if this many share it."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory / sharing)
    limits = [int(psutil.virtual_memory().total / sharing)]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    return min(limits)


def room_bytes(device: torch.device, num_local: float) -> float:
    """Memory that a plan may be given for each of so many ranks on this machine."""
    return ROOM * limit_bytes(device, sharing(device, num_local))
