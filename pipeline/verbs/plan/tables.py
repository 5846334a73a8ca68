"""What the forms of `gemslide plan` share: tables of text, and files that they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from training.foundation.errors import UnreadableError


def check_place(option: str, path: Path) -> None:
    """Check the target before any work is done. Raises UnreadableError."""
    if not path.absolute().parent.is_dir():
        raise UnreadableError(
            f"{option} {path}: there is no folder {path.absolute().parent}. Create it first, or name another file."
        )
    if path.is_dir():
        raise UnreadableError(f"{option} {path}: this is a folder. Name a file in it, such as {path / 'plan.svg'}.")


def table(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
