"""Settings of Python where pages and tiles share one process: no script may keep tiles waiting for long."""

from __future__ import annotations

import gc
import sys
import threading

SWITCH_S = 0.001
"""Seconds for which a busy thread keeps the interpreter's lock while others wait for it. With Python's own 5 ms a tile,
which changes threads and reads a file, took 20 ms and more while a page's script ran."""

_to_be_frozen = threading.Event()


def share_with_tiles() -> None:
    """Settings of this process, and leave for `first_page_is_drawn` to add its part."""
    sys.setswitchinterval(SWITCH_S)
    _to_be_frozen.set()


def first_page_is_drawn() -> None:
    """Take what is loaded by now out of garbage collection; does nothing but the first time.

    Streamlit collects after each run of a page's script, as memory stays small that way. It went through 180,000
    objects of loaded modules each time, 70 ms without a tile; without those it takes 1 ms.
    """
    if _to_be_frozen.is_set():
        _to_be_frozen.clear()
        gc.collect()
        gc.freeze()
