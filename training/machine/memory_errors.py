"""Errors that mean that memory ran out, where no error class exists for it."""

from __future__ import annotations

import torch

_WORDS = (
    "can't allocate memory", "not enough memory", "out of memory",  # torch on a CPU, and in TorchScript
    "could not create a primitive",  # oneDNN, whose kernels need memory of their own
    "failed to allocate memory", "bad allocation", "bad_alloc",  # onnxruntime
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that there was too little memory."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in message for words in _WORDS)
