"""Reports' HTML templates: every value is escaped, and a name that is missing is an error."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape


def templates_in(folder: Path) -> Environment:
    """The templates (`*.html.j2`) of one folder."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(["j2", "html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
