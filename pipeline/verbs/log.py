"""`gemslide log …`"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from pipeline.ledger import Ledger, LogFilter, find_ledger, project_history, slide_subject
from pipeline.project import open_project
from pipeline.study import Verified, verify_project_log
from pipeline.verbs.cli_output import report_errors
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

_COLUMNS = ("seq", "utc", "actor", "action", "subject", "why", "details", "hash")


def run_show(
    project_dir: Path, slide: str | None, person: str | None, before: int | None, limit: int, *, as_json: bool
) -> None:
    wanted = LogFilter(slide_subject(slide) if slide else None, person, before)
    with _opened(project_dir, as_json=as_json) as ledger:
        entries = project_history(ledger, wanted, newest=limit)
    for entry in entries:
        typer.echo(json.dumps({name: getattr(entry, name) for name in _COLUMNS}) if as_json else _line(entry))
    if not entries and not as_json:
        typer.echo("no log entries match these options")


def run_verify(project_dir: Path, *, as_json: bool) -> None:
    with _opened(project_dir, as_json=as_json) as ledger:
        verified = verify_project_log(open_project(project_dir), ledger)
    if as_json:
        typer.echo(json.dumps(asdict(verified)))
    else:
        tell_verified(verified)
    if verified.findings:
        raise typer.Exit(1)


def tell_verified(verified: Verified, before: str = "", after: str = "") -> None:
    """Print the result of verifying a whole log, as text."""
    entries = f"{counted(verified.entries, 'entry', 'entries')}, {verified.erased:,} of them erased"
    typer.echo(f"{before}{entries}, the last {verified.head[:16]}…{after}")
    for finding in verified.findings:
        typer.echo(f"changed: {finding}", err=True)


@contextmanager
def _opened(project_dir: Path, *, as_json: bool) -> Iterator[Ledger]:
    with report_errors(as_json=as_json):
        project_ledger = find_ledger(open_project(project_dir))
        if project_ledger is None:
            raise UnreadableError(f"{project_dir}: the project has no ledger, and so no log.")
        with project_ledger as ledger:
            yield ledger


def _line(entry: Any) -> str:
    """One entry as text. Its content is untrusted: characters that cannot be printed are replaced."""
    cells = [entry.utc[:19], entry.actor, entry.action, entry.subject or "erased", entry.why, entry.details]
    line = "  ".join(str(cell) for cell in cells if cell not in (None, "", "{}"))
    return f"{entry.seq}  " + "".join(char if char.isprintable() else "\ufffd" for char in line)
