"""Adapter to where networks run: devices, their numerics, threads, and pipes to the other ranks of torchrun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Set the number of threads for a block."""
    before = torch.get_num_threads()
    use_threads(count)
    try:
        yield
    finally:
        use_threads(before)


def available_devices() -> list[str]:
    """All devices of this machine, as torch names them."""
    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
