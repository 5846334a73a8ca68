"""Settings of the C library's memory allocator."""

import ctypes
import os
import platform

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30
_MOST_KEPT_BYTES = (1 << 31) - 1
"""At the end of the heap: the most that mallopt takes. What is more goes back, and a large network's next step begins
with a heap without holes."""
_KEEP_BYTES_OLD_GLIBC = 32 << 20
"""Largest mmap threshold that older versions of glibc accept (half of HEAP_MAX_SIZE)."""


def keep_freed_memory() -> bool:
    """Let the process keep large freed blocks instead of giving them back to the system.

    A training step frees and takes the same large activations again and again. By default glibc returns each block
    to the kernel, which then clears every page again: a step takes about a quarter longer. Call it once, before the
    first tensor: torch then also asks for large pages, without which a step that finds its memory in other places than
    the one before is a hundredth slower. The price: memory freed between steps is not seen by other processes.

    Returns:
        True where it took effect; False on anything but Linux with glibc, where nothing changes.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read at torch's first tensor
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    kept = mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES) or mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES_OLD_GLIBC)
    trimmed = mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT_BYTES)
    return bool(kept and trimmed)
