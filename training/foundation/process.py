"""Processes that gemslide starts, and the processors that there are for them, counted without torch."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def requests_to_stop_held() -> Iterator[list[int]]:
    """Note SIGTERM and SIGINT instead of handling them, for as long as the block lasts; yields those that came.

    A mask would not do: with several threads, another one may take the signal, and Python still handles it in this one.
    Outside the main thread, where Python handles none, nothing changes.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.getsignal(number)
            signal.signal(number, lambda number, frame: came.append(number))
        yield came
    finally:
        for known, handler in before.items():
            signal.signal(known, signal.SIG_DFL if handler is None else handler)


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
