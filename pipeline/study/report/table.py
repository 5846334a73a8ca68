"""A table of the report: the same in the page and as a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.spreadsheets import csv_line

Cell = str | int | float | None
Row = tuple[Cell, ...]
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Table:
    """Rows of one kind."""

    name: str
    """Of the CSV file, without its suffix."""
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    note: str = ""
    shown: int = 60
    """Most rows shown on the page; the CSV file has all."""

    @property
    def shown_rows(self) -> Sequence[Row]:
        return self.rows[: self.shown]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds numbers, which are right-aligned."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        return tuple(all(not isinstance(cell, str) for cell in column) for column in columns)

    def as_csv(self) -> str:
        return "".join(csv_line(row) for row in (self.columns, *self.rows))


def shown(cell: Cell) -> str:
    """A cell as shown to people."""
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return (f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3f}").replace("-", MINUS)
    return f"{cell:,}" if isinstance(cell, int) else cell


def interval(low: float | None, high: float | None) -> str:
    """A 95 % interval."""
    return "–" if low is None or high is None else f"{low:.3f} to {high:.3f}".replace("-", MINUS)
