"""Commas in the coordinates of an XML file: decimal, as some computers write them, or between thousands."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from pipeline.errors import BadAnnotationError

_ATTRIBUTES = ("X", "Y")
_TAGS = ("x", "y", "x1", "y1", "x2", "y2", "radius")
_DECIMAL = re.compile(r"[+-]?(?:0\d*,\d+|\d{4,},\d+|\d*,(?:\d{1,2}|\d{4,}))")
"""No thousands: "0,123", "1200,512", "1,5"."""
_EITHER = re.compile(r"[+-]?\d{1,3}[,.]\d{3}")


def check_commas(root: ET.Element, file_name: str) -> None:
    """Refuse numbers such as "1,200", unless others in the file show that its commas are decimal.

    Raises:
        BadAnnotationError: a coordinate may be read in two ways.
    """
    is_decimal, first = False, None
    for name, text in _coordinates(root):
        if "," not in text:
            continue
        is_decimal = is_decimal or _DECIMAL.fullmatch(text) is not None
        first = first or ((name, text) if _EITHER.fullmatch(text) else None)
    if first and not is_decimal:
        name, text = first
        raise _ambiguous(file_name, name, text, "no other coordinate of the file shows which")
    if is_decimal:
        for name, text in _coordinates(root):
            if "." in text and _EITHER.fullmatch(text):
                raise _ambiguous(file_name, name, text, "other coordinates of the file have a decimal comma")


def _ambiguous(file_name: str, name: str, text: str, why: str) -> BadAnnotationError:
    return BadAnnotationError(
        f"{file_name}: the coordinate {name}={text!r:.40} may be a decimal number or one in thousands; {why}. "
        "Export the file again with decimal points and without separators between thousands."
    )


def _coordinates(root: ET.Element) -> Iterator[tuple[str, str]]:
    for element in root.iter():
        for name in _ATTRIBUTES:
            text = element.get(name)
            if text:
                yield name, text.strip()
        if element.tag in _TAGS and element.text:
            yield element.tag, element.text.strip()
