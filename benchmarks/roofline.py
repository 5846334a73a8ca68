"""Minimum time of a forward and backward on a device, from the arithmetic and memory traffic of each operation.

An operation takes at least as long as its arithmetic at the device's best rate, and as its tensors at the memory's
rate; the sum over all operations is the time of a perfect eager run (fused operations could take less). Both rates are
measured on the device in the same run, with a large matrix product and a large copy. The operations are counted on fake
tensors, without running them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from training.engine.partition import fake_tensors, on_device, without_memory
from training.engine.stage import AUTOCAST, Precision
from training.recipe.optimisation import cross_entropy


@dataclass(frozen=True)
class Rates:
    """Peak rates of a device, per second."""

    flops: float
    """Floating-point operations (2 per multiply-add) in a matrix product."""
    bytes: float
    """Bytes read and written by a copy."""


@dataclass
class Work:
    """All operations of one forward and backward."""

    flops: int = 0
    bytes: int = 0
    operations: int = 0

    parts: list[tuple[int, int]] | None = None
    """(flops, bytes) of each operation."""

    def least_s(self, rates: Rates) -> float:
        return sum(max(flops / rates.flops, size / rates.bytes) for flops, size in self.parts or [])


def rates_of(device: torch.device, precision: Precision, *, side: int = 8192) -> Rates:
    """Measured rates; full fp32, as in the engine's bit-exact mode."""
    dtype = AUTOCAST.get(precision, torch.float32)
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    multiply_s = _best_s(lambda: a @ b, device)
    row = torch.empty(side * side * 4, dtype=torch.uint8, device=device)
    copy_s = _best_s(row.clone, device)
    return Rates(2 * side**3 / multiply_s, 2 * len(row) / copy_s)


def count_work(blocks: Sequence[nn.Module], shape: tuple[int, ...], precision: Precision, device: torch.device) -> Work:
    """Count the work of one micro-batch."""
    shells = without_memory(blocks)
    work = Work(parts=[])
    with fake_tensors():
        network = nn.Sequential(*on_device(shells, device).train())
        images = torch.empty(shape, device=device)
        labels = torch.zeros(shape[0], dtype=torch.int64, device=device)
        dtype = AUTOCAST.get(precision, torch.float32)
        with _Count(work):
            with torch.autocast(device.type, dtype=dtype, enabled=precision in AUTOCAST):
                loss = cross_entropy(network(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]  # torch ships no types for it
    return work


class _Count(TorchDispatchMode):
    """Counter of the arithmetic, reads and writes of operations; views and allocations are free."""

    def __init__(self, work: Work):
        super().__init__()
        self._work = work

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view or func.__name__.startswith(("empty", "detach", "new_empty")):
            return result
        count = flop_registry.get(func.overloadpacket)
        flops = int(count(*args, **(kwargs or {}), out_val=result)) if count else 0
        size = sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves((args, result)) if _is_tensor(leaf))
        self._work.flops, self._work.bytes = self._work.flops + flops, self._work.bytes + size
        self._work.operations += 1
        assert self._work.parts is not None
        self._work.parts.append((flops, size))
        return result


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)


def _best_s(work: Callable[[], Any], device: torch.device, times: int = 5) -> float:
    seconds = []
    for _ in range(times):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
