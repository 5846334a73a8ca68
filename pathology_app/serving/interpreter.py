"""Settings of Python where pages and tiles share one process: no script may keep tiles waiting for long."""

from __future__ import annotations

import gc
import sys
import threading

SWITCH_S = 0.001
"""Seconds for which a busy thread keeps the interpreter's lock while others wait for it. With Python's default of 5 ms,
a tile, which changes threads and reads a file, took 20 ms and more while a page's script ran."""

_to_be_frozen = threading.Event()


def share_with_tiles() -> None:
    """Set up this process, and allow `first_page_is_drawn` to do its part."""
    sys.setswitchinterval(SWITCH_S)
    _to_be_frozen.set()


def first_page_is_drawn() -> None:
    """Exclude everything loaded by now from garbage collection; does nothing after the first time.

    Streamlit collects after each run of a page's script, to keep memory small. It went through 180,000 objects of
    loaded modules each time, 70 ms in which no tile was served; without those it takes 1 ms.
    """
    if _to_be_frozen.is_set():
        _to_be_frozen.clear()
        gc.collect()
        gc.freeze()
