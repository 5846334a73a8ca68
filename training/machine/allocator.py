"""Settings of glibc's allocator for a process: one policy for training and one for prediction.

By default glibc returns each large block to the system, and the kernel clears its pages when it is allocated again:
a training step takes about a quarter longer, ResNet-18 on two cores of a virtual machine a third. Both policies keep
what was freed, in large pages. They differ in what comes next:

- a training step takes the same blocks as the one before. All are kept, however many, and returned between steps if
  the machine has little left (`give_back_if_scarce`);
- prediction moves on to other models and slides, with other blocks. A mapped block would leave a hole that the next
  tensor of the same size does not fit, since torch asks for aligned memory, and the process would grow by a batch
  now and then: nothing is mapped, and what is kept beyond a bound is returned (`give_back_what_is_free`).

On systems other than Linux with glibc this module does nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import lru_cache

import psutil

MOST_FREE_BYTES = 512 * 2**20
"""Limit of the freed memory that prediction keeps."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3)."""
_KEEP_BYTES = 1 << 30
_KEEP_BYTES_OLD_GLIBC = 32 << 20
"""Largest mmap threshold that older versions of glibc accept (half of HEAP_MAX_SIZE)."""
_NEVER = -1
_SCARCE = 0.2
"""Fraction of the machine's memory."""


def keep_for_training() -> bool:
    """Keep what a step frees for the next one. Call it once, before the first tensor: torch then also asks for large
    pages, without which a step that finds its memory in other places than the one before is 1 % slower.

    Returns:
        True if it took effect.
    """
    libc = _glibc()
    if libc is None:
        return False
    kept = libc.mallopt(_MMAP_THRESHOLD, _KEEP_BYTES) or libc.mallopt(_MMAP_THRESHOLD, _KEEP_BYTES_OLD_GLIBC)
    trimmed = libc.mallopt(_TRIM_THRESHOLD, _NEVER)
    return bool(kept and trimmed)


def keep_for_prediction() -> None:
    """Keep what one batch frees for the next one. Call it before the first tensor is made: in blocks of 2 MiB (torch's
    THP_MEM_ALLOC_ENABLE) the next tensor fits where an earlier one was."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_TOP_PAD, 64 * 2**20)


def give_back_if_scarce() -> bool:
    """Return freed memory to the system if that has little left; call it between steps.

    A step that fills the machine would otherwise find the holes of the one before, and need even more. Each page is
    then cleared again, a cost that a step short of memory must bear.

    Returns:
        True if there was anything to do.
    """
    memory = psutil.virtual_memory()
    libc = _glibc()
    if memory.available > _SCARCE * memory.total or libc is None:
        return False
    libc.malloc_trim(0)
    return True


def give_back_what_is_free() -> None:
    """Return freed memory to the system if much is kept, such as after another model or slide."""
    libc = _glibc()
    if libc is None or not hasattr(libc, "mallinfo2"):
        return
    libc.mallinfo2.restype = _Mallinfo2
    if libc.mallinfo2().fordblks > MOST_FREE_BYTES:
        libc.malloc_trim(0)


class _Mallinfo2(ctypes.Structure):
    """mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _glibc() -> ctypes.CDLL | None:
    """The C library if it is glibc; sets torch to ask it for large pages, which torch reads at its first tensor."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    is_glibc = platform.system() == "Linux" and platform.libc_ver()[0] == "glibc"
    return _library() if is_glibc else None


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
