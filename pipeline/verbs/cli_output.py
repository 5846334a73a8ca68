"""Output of verbs: JSON lines or text, a closing table of failures, exit codes.

Text on the terminal names files. JSON lines do not: they are kept and passed on, so the names of sources are removed
here, and also from the other output of a run with `--json`, which goes into the same logs.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NoReturn

import typer

from pipeline.naming.sources import SourceNames
from pipeline.run_record import SlideOutcome
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted
from training.foundation.words.names import is_name


class Reporter:
    """Collects one outcome per slide or run and prints a summary at the end.

    Args:
        sources: names that JSON lines must not contain; may grow during the run.
    """

    def __init__(self, *, as_json: bool, sources: SourceNames | None = None) -> None:
        self._as_json = as_json
        self.sources = sources or SourceNames()
        self.outcomes: list[SlideOutcome] = []

    def add(self, outcome: SlideOutcome, **facts: Any) -> SlideOutcome:
        """Keep an outcome and print it; `facts` are further keys of its JSON line.

        Returns:
            The outcome without source names, fit for a run record.
        """
        self.outcomes.append(outcome)
        if self._as_json:
            self.print_outcome(outcome, facts)
        elif outcome.is_good:
            typer.echo(f"{outcome.slide_id}: {outcome.message or outcome.status} ({outcome.seconds:.1f} s)")
        return self._without_names(outcome)

    def attempt(self, slide_id: str, work: Callable[[], SlideOutcome]) -> SlideOutcome:
        """Run the work on one slide; an error in it does not stop the others.

        Returns:
            The outcome without source names, fit for a run record.
        """
        start = time.perf_counter()
        try:
            outcome = work()
        except GemslideError as error:
            outcome = SlideOutcome.from_error(slide_id, error, time.perf_counter() - start)
        return self.add(outcome)

    def print_json(self, facts: Mapping[str, Any]) -> None:
        """Print one line on standard output, without source names."""
        typer.echo(json.dumps(self.sources.removed_from(dict(facts))))

    def print_outcome(self, outcome: SlideOutcome, facts: Mapping[str, Any] | None = None) -> None:
        """Print an outcome as a JSON line."""
        more = self.sources.removed_from(dict(facts or {}))
        typer.echo(json.dumps({**asdict(self._without_names(outcome)), **more}))

    def _without_names(self, outcome: SlideOutcome) -> SlideOutcome:
        """The outcome as lines and records may hold it. Its output is in the project, where slides are named by id."""
        if is_name(outcome.slide_id):  # otherwise a file's stem, which cannot be an id
            self.sources.keep(outcome.slide_id)
        return replace(
            outcome,
            slide_id=self.sources.removed_from(outcome.slide_id),
            message=self.sources.cleaned(outcome.message),
        )

    def explained(self, message: str) -> str:
        """A message for standard error: with names on a terminal, without them in logs."""
        return self.sources.cleaned(message) if self._as_json else message

    def say_notes(self, notes: Iterable[str]) -> None:
        """Print sentences on standard error, as `explained`."""
        for note in notes:
            typer.echo(f"note: {self.explained(note)}", err=True)

    def finish(self) -> None:
        """Print the table of failures and exit with code 1 if there are any."""
        if self.print_failures():
            raise typer.Exit(1)

    def print_failures(self) -> bool:
        """Print the table of failures. Returns whether there were any."""
        failed = [outcome for outcome in self.outcomes if not outcome.is_good]
        if not failed:
            return False
        if self._as_json:
            failed = [self._without_names(outcome) for outcome in failed]
        from rich.console import Console  # a linked slide appears sooner without it
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{len(failed)} of {len(self.outcomes)} not done", title_justify="left")
        for heading in ("slide", "code", "reason"):
            table.add_column(heading, overflow="fold")
        for outcome in failed:
            cells = (outcome.slide_id, outcome.code or outcome.status, outcome.message)
            table.add_row(*map(Text, cells))  # not markup: messages name [sections] and files
        Console(stderr=True, width=None if sys.stderr.isatty() else 200).print(table)
        return True


def say_counts(reporter: Reporter, noun: str = "slide") -> None:
    """Print the number of slides, or patients, by final state; the counts add up to all."""
    counts = Counter(outcome.status for outcome in reporter.outcomes)
    summary = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    typer.echo(f"{counted(len(reporter.outcomes), noun)}: {summary}", err=True)


@contextmanager
def report_errors(*, as_json: bool = False, name: str = "run", reporter: Reporter | None = None) -> Iterator[None]:
    """Print one message and exit with code 1, in place of a traceback, on errors not tied to a single slide.

    Args:
        reporter: its table of failed slides is printed first, so that an aborted run still names them; it also
            holds the names that a JSON line must not contain.
    """
    reporter = reporter or Reporter(as_json=as_json)
    try:
        yield
    except GemslideError as error:
        reporter.print_failures()
        _leave(error.code, str(error), reporter, as_json=as_json, name=name, cause=error)
    except OSError as error:  # a folder without write permission, a disconnected disk
        where = error.filename or "a file"
        message = f"{where}: {error.strerror}. Check that it exists and that you may read and write there."
        _leave("unreadable", message, reporter, as_json=as_json, name=name, cause=error)


def _leave(code: str, message: str, reporter: Reporter, *, as_json: bool, name: str, cause: Exception) -> NoReturn:
    if as_json:
        reporter.print_outcome(SlideOutcome(name, "refused", code=code, message=message))
    typer.echo(f"error [{code}]: {reporter.explained(message)}", err=True)
    raise typer.Exit(1) from cause
