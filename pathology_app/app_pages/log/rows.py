"""Entries of the project's log, as a table of the page and as CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pathology_app.html import tables as html_tables
from pathology_app.html.tables import Column, Link
from pathology_app.links.log import LogLink
from pipeline.ledger import STUDY_SUBJECT
from pipeline.spreadsheets import csv_line

COLUMNS = (
    Column("Entry", "number"),
    Column("Time (UTC)", "fixed"),
    Column("Person", "text"),
    Column("Action", "text"),
    Column("About", "text"),
    Column("Details", "long"),
)
CSV_COLUMNS = ("entry", "utc", "who", "what", "about", "why", "details", "hash")
_SLIDE = "slide "
_HASH = re.compile(r"[0-9a-f]{64}")


def log_html(entries: Iterable[Any], link: LogLink) -> str:
    """The page's table; a slide's name links to all entries about it."""
    return html_tables.table(COLUMNS, [_cells(entry, link) for entry in entries], label="Log, newest first")


def csv_lines(entries: Iterable[Any]) -> Iterator[str]:
    """Lines of CSV without the header. Cells that a spreadsheet would take for a formula begin with an apostrophe."""
    for entry in entries:
        cells = (
            entry.seq, entry.utc, entry.actor, entry.action, entry.subject, entry.why, entry.details, entry.hash,
        )  # fmt: skip
        yield csv_line(cells)


def _cells(entry: Any, link: LogLink) -> tuple[object, ...]:
    subject = "the log" if entry.subject == STUDY_SUBJECT else entry.subject or "erased"
    slide_id = subject.removeprefix(_SLIDE)
    subject_cell: object = subject
    if slide_id != subject and not link.slide:
        subject_cell = Link(slide_id, LogLink(slide=slide_id).query())
    when = entry.utc[:19].replace("T", " ")
    return (entry.seq, when, entry.actor, entry.action, subject_cell, _details(entry))


def _details(entry: Any) -> str:
    details = json.loads(entry.details) if entry.details else {}
    texts = [f"{name}: {_value_text(value)}" for name, value in details.items()]
    return "; ".join([*([entry.why] if entry.why else []), *texts])


def _value_text(value: object) -> str:
    if isinstance(value, str) and _HASH.fullmatch(value):
        return f"{value[: html_tables.SHORT_HASH]}…"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
