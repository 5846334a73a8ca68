"""Small pools of threads that survive a fork: a child makes its own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

CORES = max(2, os.cpu_count() or 1)
"""Threads for work that decodes or encodes; two at least, since one waits for the disk now and then."""
WINDOW = 8
"""Tasks per thread that wait at a time, so that an interrupt is heard soon."""


@lru_cache(maxsize=8)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """One pool per size and process: threads do not follow into a forked worker."""
    return ThreadPoolExecutor(threads, thread_name_prefix="gemslide")


def parallel_for(work: Callable[..., None], arguments: Iterable[tuple[int, ...]], threads: int) -> None:
    """Call `work` with every tuple of arguments; after an error no more are begun, and it is raised.

    The work itself must not come here again: with all threads waiting nobody would be left to work.
    """
    if threads <= 1:
        for each in arguments:
            work(*each)
        return
    pool, pending, errors = _pool(threads, os.getpid()), deque[Future[None]](), list[BaseException]()

    def take() -> None:
        error = pending.popleft().exception()
        if error:
            errors.append(error)

    for each in arguments:
        pending.append(pool.submit(work, *each))
        if len(pending) >= WINDOW * threads:
            take()
        if errors:
            break
    while pending:
        take()
    if errors:
        raise errors[0]
