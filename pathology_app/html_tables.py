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

Kind = Literal["text", "long", "number", "fixed", "hash"]


Room = Literal[0, 900, 1200, 1500]


@dataclass(frozen=True)
class Sort:
    """What a heading leads to: the same table, sorted by its column; and how that is sorted now."""

    query: Mapping[str, str]
    now: Literal["none", "ascending", "descending"] = "none"


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        kind: text wraps, long text not into a narrow column; numbers stand on the right; fixed text is never broken;
            of a hash the beginning is shown.
        room_px: width of the window below which the column leaves; 0: never.
        sort: how its heading sorts the table; None: it does not.
    """

    heading: str
    kind: Kind = "text"
    room_px: Room = 0
    sort: Sort | None = None


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
    """A small picture; it says nothing that does not stand beside it, too.

    Attributes:
        over: a second one that lies over it.
    """

    url: str
    over: str | None = None


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
    head = "".join(map(_heading, columns))
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


def way_out(text: str, path: str, label: str) -> str:
    """Text with a link behind it that leaves these pages for another path of the app."""
    way = f'<a href="{html.escape(path)}" target="_self">{_escaped(label)}</a>'
    return f'<span class="gs-out">{_escaped(text)} {way}</span>'


def _row(columns: Sequence[Column], row: Sequence[object]) -> str:
    cells = "".join(_cell(column, value) for column, value in zip(columns, row, strict=True))
    return f"<tr>{cells}</tr>"


def _heading(column: Column) -> str:
    said = _escaped(column.heading)
    if column.sort is None:
        return f'<th scope="col" class="{_class(column)}">{said}</th>'
    mark = {"none": "", "ascending": " ▲", "descending": " ▼"}[column.sort.now]
    link = link_html(f"{column.heading}{mark}", column.sort.query, "gs-go gs-sort")
    return f'<th scope="col" class="{_class(column)}" aria-sort="{column.sort.now}">{link}</th>'


def _class(column: Column) -> str:
    return f"{column.kind} gs-from-{column.room_px}" if column.room_px else column.kind


def _cell(column: Column, value: object) -> str:
    name = _class(column)
    if value in (None, ""):
        return f'<td class="{name}"></td>' if column.room_px else "<td></td>"
    if isinstance(value, Swatch):
        spot = f'<span class="gs-swatch" style="background: {value.colour}"></span>'
        return f'<td class="{name}">{spot}{_escaped(value.text)}</td>'
    if isinstance(value, Link):
        return f'<td class="{name}">{link_html(value.text, value.query)}</td>'
    if isinstance(value, Picture):
        return f"<td>{picture_html(value)}</td>"
    text = str(value)
    if column.kind == "hash" and len(text) > SHORT_HASH:
        return f'<td class="{name}" title="{_escaped(text)}">{_escaped(text[:SHORT_HASH])}…</td>'
    return f'<td class="{name}">{_escaped(text)}</td>'


def picture_html(picture: Picture) -> str:
    """A picture, and what lies over it, of the same shape."""
    images = (url for url in (picture.url, picture.over) if url)
    drawn = "".join(f'<img src="{html.escape(url)}" alt="" loading="lazy">' for url in images)
    return f'<span class="gs-picture">{drawn}</span>'


def link_html(text: str, query: Mapping[str, str], name: str = "gs-go") -> str:
    """A link to another page of the app. Args: name: its classes; "gs-go" must be one of them."""
    return f'<a class="{name}" target="_self" href="?{html.escape(urlencode(query))}">{_escaped(text)}</a>'


def _escaped(text: object) -> str:
    return html.escape(as_text(text))
