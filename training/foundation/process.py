"""Processes that gemslide starts, and the processors that there are for them, counted without torch."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_GPUS = Path("/proc/driver/nvidia/gpus")


def die_with_parent() -> None:
    """Ask Linux to send SIGTERM to this process when the thread that started it ends; do nothing elsewhere.

    The thread, not the process: this does not help a process started by a pool's thread
    (`pipeline.jobs.worker_process` watches its parent instead).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end_with(parent: int) -> None:
    """`die_with_parent`, called by the process itself: with threads it is unsafe between fork and exec.

    Args:
        parent: id of the process that started this one; if that has ended already, this one exits.
    """
    die_with_parent()
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, has ended.")


def gpus_here() -> int:
    """GPUs that a process started here would see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        return next((index for index, name in enumerate(names) if name in ("", "-1")), len(names))
    return len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ranks_with_room(threads: int) -> int:
    """Ranks that can compute at the same time: one on each GPU; without GPUs, one for so many cores."""
    return gpus_here() or max(1, cores_here() // threads)
