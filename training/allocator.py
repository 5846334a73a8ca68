"""How a process that runs networks on a CPU uses memory: glibc's defaults make it slow, and larger batch by batch."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

MOST_FREE_BYTES = 512 * 2**20
"""Of memory that was freed and is kept: beyond that it goes back to the system."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Parameters of mallopt(3)."""


def keep_freed_memory() -> None:
    """Keep what one batch frees for the next one, in large pages. Call it before the first tensor is made.

    By default glibc maps each large tensor anew and unmaps it, and the kernel clears its pages each time: ResNet-18
    on two cores of a virtual machine is a third faster without. What it does not map leaves holes in which the next
    tensor of the same size has no place, since torch asks for aligned memory: the process grows by a batch every now
    and then. In blocks of 2 MiB (torch's THP_MEM_ALLOC_ENABLE) the next tensor fits. Elsewhere than on Linux with
    glibc nothing happens.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 64 * 2**20)


def give_back_what_is_free() -> None:
    """Where much memory was freed and is kept, give it back to the system: after another model or slide, say."""
    libc = _libc()
    if not hasattr(libc, "mallinfo2") or not hasattr(libc, "malloc_trim"):
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


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
