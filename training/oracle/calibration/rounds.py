"""Rounds of a measurement on all ranks at once."""

from __future__ import annotations

import time
from typing import TypeVar

import torch

from training.engine.transport import Transport

WARM_UPS, ROUNDS = 4, 9


T = TypeVar("T")


def together(transport: Transport, value: T) -> list[T]:
    """Every rank's object, on every rank; every rank calls it, and waits for the others."""
    return transport.share(value, during="calibrating")


def now_s(device: torch.device) -> float:
    """The clock, once the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
