"""Limits on the time and memory of one piece of work, enforced by the operating system.

A limit on address space makes an allocation fail on the spot: GEOS, NumPy and Python all report that, and existing
data stay intact. Linux counts everything a process has mapped, so the limit is added to what is mapped at the start.
"""

from __future__ import annotations

import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from shapely.errors import GEOSException

from pipeline.errors import BadAnnotationError

_PAGE = resource.getpagesize()


@dataclass(frozen=True)
class Limits:
    """Time and memory that one piece of work may take.

    Attributes:
        seconds: wall-clock time.
        mib: memory beyond what the process has at the start.
        subject: what takes them, for messages.
        remedy: what a person can do about it.
    """

    seconds: float
    mib: int
    subject: str = "its outlines take"
    remedy: str = "Simplify the outlines, or use fewer at once."

    @classmethod
    def for_file(cls, num_bytes: int) -> Limits:
        """For a command that reads an annotation file, which takes about ten times its size in memory."""
        mib = num_bytes >> 20
        return cls(seconds=60.0 + 2.0 * mib, mib=1024 + 16 * mib)

    @classmethod
    def for_corners(cls, number: int) -> Limits:
        """For a command that repairs, joins or writes outlines with this many corners in total."""
        return cls(seconds=60.0 + number / 10_000, mib=1024 + (number >> 10))


class _TimeIsUpError(Exception):
    """Raised by the alarm."""


@contextmanager
def within(limits: Limits, what: str) -> Iterator[None]:
    """Enforce the limits during a block, on Linux; outside the main thread, only the memory limit.

    Args:
        what: subject of the message, such as "the file".

    Raises:
        BadAnnotationError: the block exceeded a limit.
    """
    try:
        with _memory(limits.mib), _alarm(limits.seconds):
            yield
    except _TimeIsUpError as error:
        raise too_long(what, limits) from error
    except MemoryError as error:
        raise too_large(what, limits) from error
    except GEOSException as error:
        if "bad_alloc" not in str(error):
            raise
        raise too_large(what, limits) from error


def too_long(what: str, limits: Limits) -> BadAnnotationError:
    return BadAnnotationError(
        f"{what}: {limits.subject} more than {limits.seconds:.0f} s to process; the work was stopped, and nothing "
        f"was changed. {limits.remedy}"
    )


def too_large(what: str, limits: Limits) -> BadAnnotationError:
    return BadAnnotationError(
        f"{what}: {limits.subject} more than {limits.mib:,} MiB of memory to process; the work was stopped, and "
        f"nothing was changed. {limits.remedy}"
    )


@contextmanager
def _memory(mib: int) -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    new_limit = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * _PAGE + (mib << 20)
    finite = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([new_limit, *finite]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """An alarm in the main thread; if one is already set, it is kept instead."""
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TimeIsUpError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
