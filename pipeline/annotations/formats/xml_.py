"""Safe reading and writing of XML: no document type (so no entities that expand or fetch files)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection

from pipeline.annotations.shapes.objects import Rgb
from pipeline.errors import BadAnnotationError

_NOT_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _NoDoctype(ET.TreeBuilder):
    """Stops at `<!DOCTYPE`: annotation files have none, and entities are declared nowhere else."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise BadAnnotationError(f"declares a document type ({name}), which annotation files never do")


def parse_xml(data: bytes, file_name: str) -> ET.Element:
    """The root element.

    Raises:
        BadAnnotationError: not well-formed, or with a document type.
    """
    parser = ET.XMLParser(target=_NoDoctype())
    try:
        parser.feed(data)
        root: ET.Element = parser.close()
    except BadAnnotationError as error:
        raise BadAnnotationError(f"{file_name}: {error}. Export it again from the program that made it.") from error
    except (ET.ParseError, ValueError, LookupError) as error:
        raise BadAnnotationError(f"{file_name}: is not well-formed XML: {error}. Export it again.") from error
    return root


def number(element: ET.Element, attribute: str, where: str) -> float:
    """A number, with a decimal point or, as some computers write it, a decimal comma.

    Raises:
        BadAnnotationError: missing, or not a number.
    """
    text = element.get(attribute, "")
    try:
        return parse_number(text)
    except ValueError as error:
        raise BadAnnotationError(f"{where}: {attribute}={text!r} is not a number. Export the file again.") from error


def text_number(parent: ET.Element, tag: str, where: str) -> float:
    """The number that is a child's text. Raises: as `number`."""
    text = parent.findtext(tag, "").strip()
    try:
        return parse_number(text)
    except ValueError as error:
        raise BadAnnotationError(f"{where}: <{tag}> {text!r:.80} is not a number. Export the file again.") from error


def parse_number(text: str) -> float:
    """A number with a decimal point or comma. Raises ValueError."""
    if "_" in text:  # Python's own spelling
        raise ValueError(text)
    return float(text.replace(",", "."))


def check_children(element: ET.Element, known: Collection[str], where: str, program: str) -> None:
    """Refuse what a program's reader would silently ignore.

    Raises:
        BadAnnotationError: names the element and the program.
    """
    for child in element:
        if child.tag not in known:
            raise BadAnnotationError(
                f"{where}: <{element.tag}> holds <{child.tag!s:.80}>, which is unknown in files of {program} (known "
                f"are {', '.join(f'<{tag}>' for tag in known)}). Export it again, or as QuPath GeoJSON."
            )


def plain_number(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return repr(float(value)).removesuffix(".0")


def legal(text: str) -> str:
    """Text without the control characters that XML cannot hold."""
    return _NOT_XML.sub("", text)


def xml_text(root: ET.Element) -> str:
    """The document, indented."""
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def rgb_of_hex(text: str | None) -> Rgb | None:
    """The colour from #RRGGBB; None for anything else."""
    if not text or not re.fullmatch(r"#[0-9A-Fa-f]{6}", text):
        return None
    value = int(text[1:], 16)
    return value >> 16, value >> 8 & 255, value & 255


def hex_of_rgb(rgb: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
