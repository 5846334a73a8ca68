"""Progress bars (in a log, lines) of pipeline and training, on standard error so that `--json` lines stay clean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from training.foundation.progress_lines import ProgressLines, report_periodically

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Advance:
    """Moves a bar: call it with the number of steps just finished. Without a bar it does nothing."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress, self._task = progress, task

    def expect(self, steps: int) -> None:
        """Announce this many more steps."""
        if self._progress is not None and self._task is not None:
            (task,) = (task for task in self._progress.tasks if task.id == self._task)
            self._progress.update(self._task, total=(task.total or 0) + steps)

    def begin_at(self, steps: int) -> None:
        """Start at steps done earlier by another process, which do not count towards this one's speed."""
        if self._progress is not None and self._task is not None:
            self._progress.reset(self._task, completed=steps, begun_at=steps)

    def describe(self, description: str) -> None:
        """Change the text before the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=description)

    def say(self, line: str) -> None:
        """Print a line that stays, above the bar."""
        if self._progress is not None:
            self._progress.console.print(line, markup=False)

    def __call__(self, steps: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, steps)


no_bar = Advance()
"""For callers that show no progress."""


@contextmanager
def bar(description: str, total: int | None = None) -> Iterator[Advance]:
    """A bar for one long task; without a total it grows with the steps that the task announces.

    If standard error is not a terminal, a line per minute replaces it.
    """
    from rich import progress as rich_progress  # a linked slide appears sooner without it
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description:<34}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with rich_progress.Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        lines = ProgressLines(progress.tasks[0], partial(console.print, markup=False, highlight=False, soft_wrap=True))
        with nullcontext() if console.is_terminal else report_periodically(lines):
            yield Advance(progress, task)
