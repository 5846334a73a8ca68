"""Adapter to where networks run: devices, their numerics, threads, and pipes to the other ranks of torchrun."""

from __future__ import annotations

import torch

from training.inference import OTHER_RANK as OTHER_RANK
from training.inference import Numerics as Numerics
from training.inference import RunOn as RunOn
from training.inference import Seconds as Seconds
from training.inference import connection_to as connection_to


def default_device() -> str:
    """The first GPU if there is one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def use_threads(count: int) -> None:
    """Set the number of threads within an operation of this process, on a CPU."""
    torch.set_num_threads(count)


def available_devices() -> list[str]:
    """All devices of this machine, as torch names them."""
    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
