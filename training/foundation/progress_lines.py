"""Progress without a terminal to draw a bar on: a line a minute for a log, even while nothing moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Task

EVERY_S = 60.0


class ProgressLines:
    """Reports the progress of a bar's task: done of total, rate, time left; or for how long nothing was finished.

    Args:
        task: counted elsewhere; its field `begun_at` is the amount done earlier by another process.
        write: accepts one line.
    """

    def __init__(self, task: Task, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._task, self._write, self._clock = task, write, clock
        self._start = self._moved = clock()
        self._completed = task.completed

    def tell(self) -> None:
        """Write one line."""
        now, completed, total = self._clock(), self._task.completed, self._task.total
        has_moved = completed > self._completed
        if has_moved:
            self._moved, self._completed = now, completed
        done = f"{completed:.0f} of {total:.0f} ({completed / total:.0%})" if total else f"{completed:.0f}"
        parts = [f"{done} after {in_minutes(now - self._start)}"]
        if not has_moved:
            parts.append(f"nothing finished for {in_minutes(now - self._moved)}")
        elif rate := (completed - self._task.fields.get("begun_at", 0)) / (now - self._start):
            parts.append(f"{rate:.3g} per s" if rate >= 1 else f"{rate * 60:.3g} per min")
            parts += [f"{in_minutes((total - completed) / rate)} left"] if total else []
        self._write(f"{self._task.description}: {', '.join(parts)}")


def in_minutes(seconds: float) -> str:
    """A duration for people, rounded up to minutes."""
    minutes = max(1, -(-round(seconds) // 60))
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


@contextmanager
def report_periodically(lines: ProgressLines, every_s: float = EVERY_S) -> Iterator[None]:
    """Write a line every `every_s` from a separate thread, so that a hang is visible."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(every_s):
            lines.tell()

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
