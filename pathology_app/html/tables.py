"""Tables and bars as HTML: long text wraps, and a keyboard reaches every link. The markup is in `tables.html.j2`.

All values are escaped, whoever wrote them; the page's policy lets no script run either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from pathology_app.html.text import as_text
from pipeline.html_templates import templates_in

SHORT_HASH = 12
"""Characters of a hash that are shown; the tooltip has all of it."""

Kind = Literal["text", "long", "number", "fixed", "hash"]


Breakpoint = Literal[0, 900, 1200, 1500]


@dataclass(frozen=True)
class Sort:
    """Target of a heading, the same table sorted by its column; and how that column is sorted now."""

    query: Mapping[str, str]
    now: Literal["none", "ascending", "descending"] = "none"


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        kind: text wraps, long text not into a narrow column; numbers are right-aligned; fixed text never wraps;
            only the beginning of a hash is shown.
        hide_below_px: window width below which the column is hidden; 0: never.
        sort: how its heading sorts the table; None: it does not.
    """

    heading: str
    kind: Kind = "text"
    hide_below_px: Breakpoint = 0
    sort: Sort | None = None

    @property
    def classes(self) -> str:
        return f"{self.kind} gs-from-{self.hide_below_px}" if self.hide_below_px else self.kind


@dataclass(frozen=True)
class Swatch:
    """A cell's text after a spot of colour."""

    text: str
    colour: str


@dataclass(frozen=True)
class Link:
    """A cell's text that leads to another page of the app (`viewer.component.follow_links`), as does its whole row."""

    text: str
    query: Mapping[str, str]


@dataclass(frozen=True)
class Picture:
    """A small image; the text beside it says the same.

    Attributes:
        over: a second image, drawn over it.
    """

    url: str
    over: str | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url, self.over) if self.over else (self.url,)


def _href(query: Mapping[str, str]) -> str:
    return f"?{urlencode(query)}"


_TEMPLATES = templates_in(Path(__file__).parent)
_TEMPLATES.filters.update(as_text=as_text, href=_href)
_TEMPLATES.tests.update(
    swatch=lambda value: isinstance(value, Swatch),
    link=lambda value: isinstance(value, Link),
    picture=lambda value: isinstance(value, Picture),
)
_TEMPLATES.globals["short_hash"] = SHORT_HASH
_MARKUP = _TEMPLATES.get_template("tables.html.j2").module


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], *, foot: Sequence[object] | None = None, label: str
) -> str:
    """A table. None and "" are empty cells; a column with only empty cells is left out.

    Args:
        foot: a last row that sums up the others.
        label: name of the table for a screen reader.
    """
    rows = [list(row) for row in rows]
    kept = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)] or [0]
    columns, rows = [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]
    return _markup("table", columns, rows, [foot[at] for at in kept] if foot else None, label)


def bar(parts: Mapping[str, int], colours: Mapping[str, str]) -> str:
    """A horizontal bar of parts that add up to the whole, each as long as its share."""
    whole = sum(parts.values())
    shown = [(name, number, number / whole, colours[name]) for name, number in parts.items() if number]
    return _markup("bar", shown, ", ".join(f"{number} {name}" for name, number, *_ in shown))


def facts(values: Mapping[str, object]) -> str:
    """Short facts side by side, each under its name."""
    return _markup("facts", values)


def beside(blocks: Mapping[str, str]) -> str:
    """Blocks of HTML under headings, side by side where there is room.

    Args:
        blocks: HTML from `table` or `bar`, by heading.
    """
    return _markup("beside", blocks)


def external_link(text: str, path: str, label: str) -> str:
    """Text, then a link that leaves these pages for another path of the app."""
    return _markup("external_link", text, path, label)


def picture_html(picture: Picture) -> str:
    """An image, with another of the same shape over it if it has one."""
    return _markup("picture", picture.urls)


def link_html(text: str, query: Mapping[str, str], name: str = "gs-go") -> str:
    """A link to another page of the app. Args: name: its classes; "gs-go" must be one of them."""
    return _markup("link", text, _href(query), name)


def _markup(macro: str, *values: object) -> str:
    return str(getattr(_MARKUP, macro)(*values))
