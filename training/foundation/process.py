"""Processes that gemslide starts."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


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
