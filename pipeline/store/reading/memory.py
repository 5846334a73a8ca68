"""Memory at addresses where the processor is fastest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bytes_at(num_bytes: int, *, multiple_of: int, plus: int = 0) -> NDArray[np.uint8]:
    """New memory, uint8 (num_bytes,), uninitialised, at an address that is a multiple of a number, plus another."""
    memory = np.empty(num_bytes + multiple_of, np.uint8)
    start = (plus - memory.ctypes.data) % multiple_of
    return memory[start : start + num_bytes]
