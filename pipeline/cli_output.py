"""How verbs speak: JSON lines or words, a closing table of failures, exit codes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.errors import GemslideError
from pipeline.run_record import SlideOutcome


class Reporter:
    """Collects one outcome per slide or run and tells the person at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.outcomes: list[SlideOutcome] = []

    def add(self, outcome: SlideOutcome) -> None:
        self.outcomes.append(outcome)
        if self._as_json:
            typer.echo(outcome.as_json())
        elif outcome.is_good:
            typer.echo(f"{outcome.slide_id}: {outcome.message or outcome.status} ({outcome.seconds:.1f} s)")

    def attempt(self, slide_id: str, work: Callable[[], SlideOutcome]) -> SlideOutcome:
        """Run the work on one slide; what is wrong with it does not stop the others."""
        start = time.perf_counter()
        try:
            outcome = work()
        except GemslideError as error:
            outcome = SlideOutcome.from_error(slide_id, error, time.perf_counter() - start)
        self.add(outcome)
        return outcome

    def finish(self) -> None:
        """Print the table of failures and leave with 1 if there are any."""
        if self.print_failures():
            raise typer.Exit(1)

    def print_failures(self) -> bool:
        """Print the table of failures; whether there were any."""
        failed = [outcome for outcome in self.outcomes if not outcome.is_good]
        if not failed:
            return False
        table = Table(title=f"{len(failed)} of {len(self.outcomes)} not done", title_justify="left")
        for heading in ("slide", "code", "reason"):
            table.add_column(heading, overflow="fold")
        for outcome in failed:
            cells = (outcome.slide_id, outcome.code or outcome.status, outcome.message)
            table.add_row(*map(Text, cells))  # not markup: messages name [sections] and files
        Console(stderr=True, width=None if sys.stderr.isatty() else 200).print(table)
        return True


@contextmanager
def errors_in_words(*, as_json: bool = False, name: str = "run", reporter: Reporter | None = None) -> Iterator[None]:
    """One message and exit code 1 in place of a traceback, for what is not about a single slide.

    Args:
        reporter: its table of failed slides is printed first, so that a run cut short still names them.
    """
    try:
        yield
    except GemslideError as error:
        if reporter:
            reporter.print_failures()
        _leave(error.code, str(error), as_json=as_json, name=name, cause=error)
    except OSError as error:  # a folder that may not be written, a disk that went away
        where = error.filename or "a file"
        message = f"{where}: {error.strerror}. Check that it exists and that you may read and write there."
        _leave("unreadable", message, as_json=as_json, name=name, cause=error)


def _leave(code: str, message: str, *, as_json: bool, name: str, cause: Exception) -> NoReturn:
    if as_json:
        typer.echo(SlideOutcome(name, "refused", code=code, message=message).as_json())
    typer.echo(f"error [{code}]: {message}", err=True)
    raise typer.Exit(1) from cause
