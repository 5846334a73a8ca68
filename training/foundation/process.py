"""Processes that gemslide starts."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to send SIGTERM to this process when the thread that started it is gone; elsewhere nothing happens.

    The thread, not the process: no help for a process that a pool's thread starts (`pipeline.jobs.worker_process`
    watches its parent instead).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end_with(parent: int) -> None:
    """`die_with_parent` for a process to call itself: one that has threads cannot safely do so between fork and exec.

    Args:
        parent: number of the process that started this one; where that is gone already, this one ends here.
    """
    die_with_parent()
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, is gone.")
