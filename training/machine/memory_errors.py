"""Errors that mean that memory ran out, where there is no error class for it."""

from __future__ import annotations

import torch

_WORDS = (
    "can't allocate memory", "not enough memory", "out of memory",  # torch on a CPU, and in TorchScript
    "could not create a primitive",  # oneDNN, whose kernels need memory of their own
    "failed to allocate memory", "bad allocation", "bad_alloc",  # onnxruntime
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it failed because there was too little memory."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in said for words in _WORDS)
