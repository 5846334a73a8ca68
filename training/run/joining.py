"""Joining the ranks of a run, as `training.local_ranks` or torchrun has started them."""

from __future__ import annotations

import os
from typing import Any, Literal

import torch

from training.engine.ranks import Ranks, alone, connect_ranks
from training.local_ranks import MEETING_VARIABLE


def join_ranks(world_size: int, *, timeout_s: float) -> tuple[Ranks, torch.device]:
    """Connect this rank to the others, and choose its device.

    Raises:
        LostPeerError: the others did not connect within the timeout.
    """
    device, is_shared = _device(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if world_size == 1:
        return alone(), device
    # NCCL does not allow two ranks on one GPU.
    backend: Literal["gloo", "nccl"] | None = "gloo" if is_shared else None
    return connect_ranks(timeout_s=timeout_s, device=device, backend=backend, **_rendezvous(world_size)), device


def _rendezvous(world_size: int) -> dict[str, Any]:
    """Rendezvous of the ranks: a file on one machine, torchrun's address otherwise."""
    if MEETING_VARIABLE not in os.environ:
        return {}
    where = os.environ[MEETING_VARIABLE]
    return {"init_method": f"file://{where}", "rank": int(os.environ["RANK"]), "num_ranks": world_size}


def _device(local_ranks: int) -> tuple[torch.device, bool]:
    """The GPU of this rank, and whether others share it; the CPU if there is no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu"), False
    num_gpus, local_rank = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", local_rank % num_gpus), num_gpus < local_ranks
