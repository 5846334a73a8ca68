"""Small pools of threads that survive a fork: a child makes its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache


@lru_cache(maxsize=8)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """One pool per size and process: threads do not follow into a forked worker."""
    return ThreadPoolExecutor(threads, thread_name_prefix="gemslide")


def in_threads(work: Callable[..., None], arguments: Iterable[tuple[int, ...]], threads: int) -> None:
    """Call `work` with every tuple of arguments; the first error is raised when all have ended.

    The work itself must not come here again: with all threads waiting nobody would be left to work.
    """
    if threads <= 1:
        for each in arguments:
            work(*each)
        return
    pending = [_pool(threads, os.getpid()).submit(work, *each) for each in arguments]
    errors = [error for error in (future.exception() for future in pending) if error]
    if errors:
        raise errors[0]
