"""Threads within an operation: part of a recipe, because sums added in another order differ in their last bits."""

from __future__ import annotations

import os

import torch

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def use_threads(count: int) -> None:
    """Split every operation of this process over `count` threads, whatever the environment says."""
    for name in VARIABLES:
        os.environ[name] = str(count)
    torch.set_num_threads(count)


def instruction_set() -> str:
    """The CPU instructions that torch's kernels use, such as `AVX2`: others also change the last bits of sums."""
    return torch.backends.cpu.get_cpu_capability()
