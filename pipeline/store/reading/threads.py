"""Small pools of threads that survive a fork: a child makes its own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

CORES = max(2, os.cpu_count() or 1)
"""Threads for work that decodes or encodes; at least two, since one sometimes waits for the disk."""
WINDOW = 8
"""Tasks waiting per thread at a time, few enough to react soon to an interrupt."""


@lru_cache(maxsize=8)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """One pool per size and process: threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="gemslide")


def parallel_for(work: Callable[..., None], arguments: Iterable[tuple[int, ...]], threads: int) -> None:
    """Call `work` with every tuple of arguments; after an error no more are started, and it is raised.

    The work itself must not call this: with all threads waiting, none would be left to work.
    """
    if threads <= 1:
        for values in arguments:
            work(*values)
        return
    pool, pending, errors = _pool(threads, os.getpid()), deque[Future[None]](), list[BaseException]()

    def take() -> None:
        error = pending.popleft().exception()
        if error:
            errors.append(error)

    for values in arguments:
        pending.append(pool.submit(work, *values))
        if len(pending) >= WINDOW * threads:
            take()
        if errors:
            break
    while pending:
        take()
    if errors:
        raise errors[0]
