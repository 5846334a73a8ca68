"""Progress bars, on standard error so that `--json` lines stay clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[int], None]
"""Called with the number of steps just finished."""


@contextmanager
def bar(description: str, total: int | None) -> Iterator[Advance]:
    """A bar for one long stretch; yields the function that moves it. A total of None shows only what is done."""
    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total)
        yield lambda steps: progress.advance(task, steps)


def no_bar(_: int) -> None:
    """For callers who show no progress."""
