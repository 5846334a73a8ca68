"""Joining the ranks of a run, as `training.local_ranks` or torchrun has started them."""

from __future__ import annotations

import os
from typing import Any

import torch

from training.engine.ranks import Ranks, alone, connect_ranks
from training.local_ranks import MEETING_VARIABLE
from training.machine.devices import device_here


def join_ranks(world_size: int, *, timeout_s: float) -> tuple[Ranks, torch.device]:
    """Connect this rank to the others, and choose its device.

    Raises:
        LostPeerError: the others did not connect within the timeout.
    """
    device, backend = device_here()
    if world_size == 1:
        return alone(), device
    return connect_ranks(timeout_s=timeout_s, device=device, backend=backend, **_rendezvous(world_size)), device


def _rendezvous(world_size: int) -> dict[str, Any]:
    """Rendezvous of the ranks: a file on one machine, torchrun's address otherwise."""
    if MEETING_VARIABLE not in os.environ:
        return {}
    where = os.environ[MEETING_VARIABLE]
    return {"init_method": f"file://{where}", "rank": int(os.environ["RANK"]), "num_ranks": world_size}
