"""`gemslide compare`."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from textwrap import fill

import typer

from pipeline.models.compare import Comparison, compare, shown
from pipeline.project import open_project
from pipeline.verbs.cli_output import report_errors

COLUMNS = 100


def run_compare(a: str, b: str, project: Path, *, as_json: bool) -> None:
    with report_errors(as_json=as_json, name="compare"):
        comparison = compare(a, b, open_project(project))
    typer.echo(json.dumps(asdict(comparison)) if as_json else "\n".join(_lines(comparison)))


def _lines(comparison: Comparison) -> list[str]:
    """One line per difference, grouped by part, and the conclusion."""
    rows = [(f"  {row.key}", shown(row.a), shown(row.b)) for row in comparison.differences]
    rows.insert(0, ("", comparison.a, comparison.b))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_row(rows[0], widths)]
    for part, within in groupby(zip(comparison.differences, rows[1:], strict=True), lambda pair: pair[0].part):
        lines += [part, *(_row(row, widths) for _, row in within)]
    if not comparison.differences:
        lines.append("No difference.")
    return [*lines, "", fill(comparison.conclusion, COLUMNS)]


def _row(cells: tuple[str, str, str], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
