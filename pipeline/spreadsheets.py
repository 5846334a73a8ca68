"""Text tables as spreadsheets write them: commas, semicolons or tabs, with a byte order mark or as UTF-16.

Whatever could be read in two ways is refused, with advice on saving it: a byte that is not UTF-8, a first line with two
kinds of separators, a cell that a spreadsheet has altered.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadManifestError
from training.foundation.reading import read_regular

TABLE_SUFFIXES = (".csv", ".tsv", ".txt")
WORKBOOK_SUFFIXES = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
"""Accepted as tables too, so that the message can say how to save one."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
HOW_TO_SAVE = 'Save it as "CSV UTF-8 (comma delimited)" and give that file'
_WORKBOOKS = (
    (b"PK\x03\x04", "a spreadsheet (.xlsx or .ods), not a table of text"),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet (.xls), not a table of text"),
    (b"%PDF", "a PDF document, not a table of text"),
    (b"{\\rtf", "a text document (RTF), not a table of text"),
    (b"<", "HTML or XML, not a table of text"),
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SEP_LINE = re.compile(r"""[\s,;|"]*sep= *([^"\r\n])"?(?:\1| )*(?:\r\n|\r|\n|$)""", re.IGNORECASE)
"""Also after blank lines, and as programs save such a line again: quoted, and filled up with separators."""
_ANY_SEP_LINE = re.compile(r"""[\s,;|"]*(sep=[^\r\n]*)""", re.IGNORECASE)
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of text that a spreadsheet runs as a formula."""
_SPOILT = re.compile(
    r"""
    \#.*[!?] | \#+                                                 # an error, a column too narrow for its number
    | \#(?:N/A|NV|N/D|N/B|I/T|Н/Д|Δ/Υ|YOK|SAKNAS|PUUTTUU|HIÁNYZIK|NENÍ_K_DISPOZICI|NEDOSTUPN[ÝÉ]|GETTING_DATA)
    | (?:Err|Error|Erro|Erreur|Errore|Fehler|Fout|Fel|Feil|Fejl|Virhe|Błąd|Chyba|Hiba|Hata|Ошибка)\s?:\s?[0-9]{3}
    | =.*                                                         # a formula, among them protected text (="0012")
    | [0-9](?:[.,][0-9]+)?(?-i:E)\+[0-9]+                         # a long number, shortened
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""Text that Excel or LibreOffice, in any language, writes in place of a cell's value."""


@dataclass(frozen=True)
class Row:
    """One record of a table."""

    number: int
    """The line it begins on."""
    cells: tuple[str, ...]
    """Without surrounding blanks."""


def read_rows(path: Path, *, max_bytes: int) -> list[Row]:
    """Every non-empty record, including the header.

    Raises:
        BadManifestError: not there, too large, not a table of text, not UTF-8 or UTF-16, unclosed quotes, a
            first line with two kinds of separators, or a cell that a spreadsheet has altered.
    """
    try:
        text = decoded(read_regular(path, max_bytes=max_bytes))
        rows = list(_rows(text))
    except BadManifestError as error:
        raise BadManifestError(f"{path}: {error}") from error
    except (OSError, csv.Error) as error:
        raise BadManifestError(f"{path}: cannot be read as a UTF-8 CSV file: {error}.") from error
    for row in rows:
        for column, cell in enumerate(row.cells, start=1):
            if is_altered(cell):
                raise BadManifestError(
                    f"{path}, line {row.number}: column {column} holds {cell!r:.80}, which a spreadsheet has put in "
                    "place of another value. Format the column as text, type the value again "
                    "(or empty the cell), and save it as CSV."
                )
    return rows


def is_altered(cell: str) -> bool:
    """Whether a spreadsheet has put a cell's text in place of another value."""
    return _SPOILT.fullmatch(cell) is not None


def with_header(path: Path, rows: Sequence[Row]) -> tuple[list[str], Iterator[tuple[int, dict[str, str]]]]:
    """The names of the columns, and (line, cells by name) of every further row. Columns without a name must be empty.

    Raises:
        BadManifestError: a name twice; while the rows are read, a cell in a column without a name, or a row of another
            length.
    """
    header = list(rows[0].cells) if rows else []
    while header and not header[-1]:
        header.pop()
    for name, count in Counter(filter(None, header)).items():
        if count > 1:
            raise BadManifestError(f"{path}: the column `{name:.200}` appears {count} times. Keep one.")
    return header, ((row.number, _by_name(path, header, row)) for row in rows[1:])


def _by_name(path: Path, header: Sequence[str], row: Row) -> dict[str, str]:
    cells = list(row.cells)
    while len(cells) > len(header) and not cells[-1]:
        cells.pop()
    if len(cells) != len(header):
        raise BadManifestError(
            f"{path}, line {row.number}: the number of fields differs from the header's ({len(cells)}, not "
            f"{len(header)}). {_other_separator(header, cells)}"
        )
    for column, (name, cell) in enumerate(zip(header, cells, strict=True), start=1):
        if cell and not name:
            raise BadManifestError(
                f"{path}, line {row.number}: column {column} has no name, but holds {cell!r:.80}. Name it, or empty it."
            )
    return {name: cell for name, cell in zip(header, cells, strict=True) if name}


def _other_separator(header: Sequence[str], cells: Sequence[str]) -> str:
    if len(cells) == 1 and len(header) > 1:
        names = [name for separator, name in SEPARATORS.items() if separator in cells[0]]
        if names:
            return f"Its cells are separated by {names[0]}, the header's by something else."
    return "Give every row one field for each column."


def decoded(data: bytes) -> str:
    """The text of a table's bytes.

    Raises:
        BadManifestError: not text, or neither UTF-8 nor UTF-16.
    """
    what = next((what for start, what in _WORKBOOKS if data.startswith(start)), None)
    if what is not None:
        raise BadManifestError(f"is {what}. {HOW_TO_SAVE}.")
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), None) or _utf16_without_mark(data)
    try:
        return data.decode(encoding or "utf-8").lstrip("\N{ZERO WIDTH NO-BREAK SPACE}")  # a second mark
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadManifestError(
            f"line {line}: the byte 0x{data[error.start]:02X} is not {(encoding or 'utf-8').upper()}: it was saved in "
            f"another encoding (Latin-1, Windows-1252, …), in which names could be misread. {HOW_TO_SAVE}."
        ) from error


def _utf16_without_mark(data: bytes) -> str | None:
    """The encoding by its first character, which is a plain letter of a column's name."""
    if len(data) >= 4 and len(data) % 2 == 0:
        if data[1] == data[3] == 0 and data[0] and data[2]:
            return "utf-16-le"
        if data[0] == data[2] == 0 and data[1] and data[3]:
            return "utf-16-be"
    return None


def _rows(text: str) -> Iterator[Row]:
    sep_line = _SEP_LINE.match(text)
    wrong = None if sep_line else _ANY_SEP_LINE.match(text)
    if wrong:
        raise BadManifestError(
            f"its line {wrong[1]!r:.80} does not name one separator. Write it as in `sep=;`, or remove it."
        )
    skipped = len(re.findall(r"\r\n|\r|\n", sep_line[0])) if sep_line else 0
    body = text[sep_line.end() :] if sep_line else text
    separator = sep_line[1] if sep_line else separator_of(body)
    reader = csv.reader(io.StringIO(body, newline=""), delimiter=separator, strict=True)
    first_line = 1
    for cells in reader:
        stripped = tuple(cell.strip() for cell in cells)
        if any(stripped):
            yield Row(first_line + skipped, stripped)
        first_line = reader.line_num + 1


def separator_of(text: str) -> str:
    """Separator of the cells of a table's first non-empty record; a comma if there is none.

    Raises:
        BadManifestError: it holds two kinds of separators outside quotes.
    """
    separators: list[str] = []
    in_quotes = has_begun = False
    for character in text:
        if character == '"':
            in_quotes = not in_quotes
        elif character in "\r\n" and not in_quotes and has_begun:
            break
        has_begun |= not character.isspace()
        if in_quotes:
            continue
        if character in SEPARATORS and character not in separators:
            separators.append(character)
    if len(separators) > 1:
        named = " and ".join(SEPARATORS[separator] for separator in separators)
        raise BadManifestError(
            f"its first line holds {named}: it is unclear which of them separates the cells. {HOW_TO_SAVE}, or "
            "write the separator on a separate line above it, as in `sep=;`."
        )
    return separators[0] if separators else ","


def cells_of_any(data: bytes) -> Iterator[list[str]]:
    """Cells of every record of a table; if it is unclear how to read it, by every separator.

    For finding each name that it may contain. Raises csv.Error.
    """
    try:
        rows = list(_rows(decoded(data)))
    except (BadManifestError, csv.Error):
        text = data.decode(
            "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig", "replace"
        )
        if not text.isascii():
            text += "\n" + data.decode("utf-8-sig", "surrogateescape")
        for separator in SEPARATORS:
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
                yield [cell.strip() for cell in row]
        return
    yield from (list(row.cells) for row in rows)


def csv_line(cells: Iterable[object]) -> str:
    """One line of CSV; text that a spreadsheet would take for a formula gets an apostrophe before it."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([as_cell(cell) for cell in cells])
    return line.getvalue()


def as_cell(cell: object) -> object:
    """The cell, with an apostrophe before text that a spreadsheet would take for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULAS) else cell
