"""Settings of a GPU's kernels without which repeating a step would give different bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def deterministic_kernels(device: torch.device, *, wanted: bool) -> Iterator[None]:
    """On CUDA, use deterministic kernels and full fp32 (no TF32); restore the program's settings afterwards.

    For an operation without a deterministic kernel torch raises an error that names it. On a CPU nothing changes: its
    kernels are deterministic for a given number of threads.
    """
    if device.type != "cuda" or not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    algorithms = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = _fills_new_memory(False)  # filling would write every new tensor once more
    try:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False, False
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before
        torch.use_deterministic_algorithms(algorithms, warn_only=warns)
        _fills_new_memory(fills)


def _fills_new_memory(wanted: bool) -> bool:
    """Set whether torch fills new memory; return the previous setting."""
    settings: Any = torch.utils.deterministic
    before = bool(settings.fill_uninitialized_memory)
    settings.fill_uninitialized_memory = wanted
    return before
