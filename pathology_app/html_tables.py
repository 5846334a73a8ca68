"""Tables and bars as HTML: text wraps in place of being cut off, and a keyboard reaches every link.

Everything that goes into them is escaped, whoever wrote it; the page's policy lets no script of theirs run either.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from pathology_app.text import as_text

SHORT_HASH = 12
"""Characters of a hash that are shown; the whole is its tooltip."""

STYLE = """
<style>
.gs-table { width: 100%; border-collapse: collapse; font-size: 0.875rem; line-height: 1.4; margin-bottom: 0.5rem; }
.gs-table th { text-align: left; font-weight: 600; color: #555867; border-bottom: 1px solid #d5d6dc;
  padding: 4px 16px 4px 0; }
.gs-table td { border-bottom: 1px solid #ebecf0; padding: 4px 16px 4px 0; vertical-align: top; overflow-wrap: anywhere;
  unicode-bidi: isolate; }
.gs-table tfoot td { font-weight: 600; border-bottom: none; }
.gs-table .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.gs-table .fixed { white-space: nowrap; font-variant-numeric: tabular-nums; }
.gs-table td.hash { white-space: nowrap; font-family: monospace; }
.gs-table .text { min-width: 6.5rem; }
.gs-table .long { min-width: 16rem; }
.gs-table a.gs-go { color: #8f1248; font-weight: 600; text-decoration: underline; text-underline-offset: 3px; }
.gs-table a.gs-go:focus-visible { outline: 2px solid #b0175b; outline-offset: 3px; }
.gs-table tr:has(a.gs-go) td { padding-top: 10px; padding-bottom: 10px; cursor: pointer; }
.gs-table tr:has(a.gs-go):hover td { background: #f6f7f9; }
.gs-table img { display: block; width: 150px; height: 90px; object-fit: contain; object-position: left center; }
.gs-scroll { overflow-x: auto; }
.gs-facts { display: flex; flex-wrap: wrap; gap: 8px 32px; margin: 0 0 12px; }
.gs-facts span { display: block; font-size: 0.8rem; color: #555867; }
.gs-facts strong { font-size: 1.3rem; font-weight: 400; overflow-wrap: anywhere; font-variant-numeric: tabular-nums;
  unicode-bidi: isolate; }
.gs-beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 8px 40px; }
.gs-beside h5 { margin: 0 0 6px; padding: 0; font-size: 1rem; font-weight: 600; }
.gs-bar { display: flex; gap: 1px; height: 22px; border-radius: 4px; overflow: hidden; background: #ebecf0;
  margin-bottom: 8px; }
.gs-bar span { min-width: 3px; }
.gs-swatch { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 8px; }
</style>
"""
"""Put on every page once."""

Kind = Literal["text", "long", "number", "fixed", "hash"]


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        kind: text wraps, long text not into a narrow column; numbers stand on the right; fixed text is never broken;
            of a hash the beginning is shown.
    """

    heading: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Swatch:
    """A cell's text behind a spot of colour."""

    text: str
    colour: str


@dataclass(frozen=True)
class Link:
    """A cell's text that leads to another page of the app (`viewer.component.follow_links`), as does its whole row."""

    text: str
    query: Mapping[str, str]


@dataclass(frozen=True)
class Picture:
    """A small picture; it says nothing that does not stand beside it, too."""

    url: str


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], *, foot: Sequence[object] | None = None, label: str
) -> str:
    """A table. None and "" are empty cells; a column without any other is left out.

    Args:
        foot: a last row that sums the others up.
        label: what the table is, for who does not see it.
    """
    rows = [list(row) for row in rows]
    kept = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)] or [0]
    columns, rows = [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]
    foot = [foot[at] for at in kept] if foot else None
    head = "".join(f'<th scope="col" class="{column.kind}">{_escaped(column.heading)}</th>' for column in columns)
    body = "".join(_row(columns, row) for row in rows)
    last = f"<tfoot>{_row(columns, foot)}</tfoot>" if foot else ""
    return (
        f'<div class="gs-scroll"><table class="gs-table" aria-label="{_escaped(label)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody>{last}</table></div>"
    )


def bar(parts: Mapping[str, int], colours: Mapping[str, str]) -> str:
    """One horizontal bar of parts that add up to the whole, each as long as its share."""
    whole = sum(parts.values())
    shown = {name: number for name, number in parts.items() if number}
    said = _escaped(", ".join(f"{number} {name}" for name, number in shown.items()))
    spans = "".join(
        f'<span style="flex: {number / whole:.6f} 1 0; background: {colours[name]}" '
        f'title="{_escaped(f"{name}: {number}")}"></span>'
        for name, number in shown.items()
    )
    return f'<div class="gs-bar" role="img" aria-label="{said}">{spans}</div>'


def facts(said: Mapping[str, object]) -> str:
    """Short facts beside each other, each under its name."""
    items = "".join(
        f"<div><span>{_escaped(name)}</span><strong>{_escaped(value)}</strong></div>" for name, value in said.items()
    )
    return f'<div class="gs-facts">{items}</div>'


def beside(blocks: Mapping[str, str]) -> str:
    """Blocks of HTML under headings, beside each other where there is room.

    Args:
        blocks: what `table` and `bar` gave, by heading.
    """
    sections = "".join(f"<section><h5>{_escaped(heading)}</h5>{block}</section>" for heading, block in blocks.items())
    return f'<div class="gs-beside">{sections}</div>'


def _row(columns: Sequence[Column], row: Sequence[object]) -> str:
    cells = "".join(_cell(column, value) for column, value in zip(columns, row, strict=True))
    return f"<tr>{cells}</tr>"


def _cell(column: Column, value: object) -> str:
    if value in (None, ""):
        return "<td></td>"
    if isinstance(value, Swatch):
        spot = f'<span class="gs-swatch" style="background: {value.colour}"></span>'
        return f'<td class="{column.kind}">{spot}{_escaped(value.text)}</td>'
    if isinstance(value, Link):
        return f'<td class="{column.kind}">{_link(value)}</td>'
    if isinstance(value, Picture):
        return f'<td><img src="{html.escape(value.url)}" alt="" loading="lazy"></td>'
    text = str(value)
    if column.kind == "hash" and len(text) > SHORT_HASH:
        return f'<td class="hash" title="{_escaped(text)}">{_escaped(text[:SHORT_HASH])}…</td>'
    return f'<td class="{column.kind}">{_escaped(text)}</td>'


def _link(link: Link) -> str:
    return f'<a class="gs-go" target="_self" href="?{html.escape(urlencode(link.query))}">{_escaped(link.text)}</a>'


def _escaped(text: object) -> str:
    return html.escape(as_text(text))
