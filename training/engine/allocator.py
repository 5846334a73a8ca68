"""Settings of the C library's memory allocator."""

import ctypes
import os
import platform

import psutil

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30
_NEVER = -1
_SCARCE = 0.2
"""Of the machine's memory."""
_KEEP_BYTES_OLD_GLIBC = 32 << 20
"""Largest mmap threshold that older versions of glibc accept (half of HEAP_MAX_SIZE)."""


def keep_freed_memory() -> bool:
    """Let the process keep large freed blocks instead of giving them back to the system.

    A training step frees and takes the same large activations again and again. By default glibc returns each block
    to the kernel, which then clears every page again: a step takes about a quarter longer. Call it once, before the
    first tensor: torch then also asks for large pages, without which a step that finds its memory in other places than
    the one before is a hundredth slower. The price: memory freed between steps is not seen by other processes, and has
    holes; where it is scarce, `give_back_if_scarce` between steps.

    Returns:
        True where it took effect; False on anything but Linux with glibc, where nothing changes.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read at torch's first tensor
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    kept = mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES) or mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES_OLD_GLIBC)
    trimmed = mallopt(_M_TRIM_THRESHOLD, _NEVER)
    return bool(kept and trimmed)


def give_back_if_scarce() -> bool:
    """Return what was freed to the system where that has little left; between steps.

    A step that fills the machine would otherwise find the holes of the one before, and need more than that. Each page
    is then cleared again, which a step without room has to pay for.

    Returns:
        True where there was anything to be done.
    """
    memory = psutil.virtual_memory()
    if memory.available > _SCARCE * memory.total:
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return False
    libc.malloc_trim(0)
    return True
