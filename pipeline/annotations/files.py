"""Reading and writing annotation files: the format is told by a file's content, not by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.annotations import asap, imagescope
from pipeline.annotations.asap import read_asap, write_asap
from pipeline.annotations.imagescope import read_imagescope, write_imagescope
from pipeline.annotations.objects import AnnotationFile, Format
from pipeline.annotations.qupath import read_qupath, write_qupath
from pipeline.annotations.xml_ import parse_xml
from pipeline.errors import BadAnnotationError
from training.foundation.class_names import check_class_name
from training.foundation.reading import parse_json, read_regular

MAX_BYTES = 1 << 30
"""A file is read whole, and takes about ten times its size in memory."""

XML_READERS = {asap.ROOT: read_asap, imagescope.ROOT: read_imagescope}
WRITERS: dict[Format, Callable[[Path, AnnotationFile], list[str]]] = {
    "qupath": write_qupath,
    "asap": write_asap,
    "imagescope": write_imagescope,
}
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def read_annotations(path: Path) -> AnnotationFile:
    """Read a QuPath, ASAP or ImageScope file.

    Raises:
        BadAnnotationError: not there, too large, of another kind, damaged, or with a class that cannot be called so.
    """
    return parse_annotations(_read(path), path)


def parse_annotations(data: bytes, path: Path) -> AnnotationFile:
    """What a file's bytes say; `path` is for messages. Raises: as `read_annotations`."""
    file = _parsed(path, data)
    _check_class_names(file)
    return file


def _parsed(path: Path, data: bytes) -> AnnotationFile:
    is_xml = data[:4096].lstrip(b"".join(_BYTE_ORDER_MARKS) + b" \t\r\n\0").startswith(b"<")
    if is_xml:
        root = parse_xml(data, path.name)
        if root.tag not in XML_READERS:
            known = ", ".join(f"<{tag}>" for tag in XML_READERS)
            raise BadAnnotationError(
                f"{path}: is XML that starts with <{root.tag}>; annotations of ASAP and ImageScope start with {known}."
            )
        return XML_READERS[root.tag](root, path.name)
    try:
        # JSON tells UTF-8, UTF-16 and UTF-32 apart, with a byte order mark or without.
        return read_qupath(parse_json(data), path.name)
    except (ValueError, RecursionError) as error:
        raise BadAnnotationError(
            f"{path}: is neither GeoJSON nor XML: {error}. Export it again from QuPath (GeoJSON), ASAP or ImageScope."
        ) from error


def _check_class_names(file: AnnotationFile) -> None:
    """Class names go into tables, models and pages: what cannot stand there is refused where it comes in."""
    first = {obj.class_name: obj.where for obj in reversed(file.objects)}
    groups = {name: "a group" for group in file.groups for name in (group.name, group.parent)}
    for name, where in (groups | first).items():
        try:
            check_class_name(name or "none")  # an object may have no class
        except ValueError as error:
            raise BadAnnotationError(f"{where}: {error}. Rename the class in the program that made it.") from error


def _read(path: Path) -> bytes:
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise BadAnnotationError(
                f"{path}: {path.stat().st_size / 2**20:.0f} MiB; annotation files of up to {MAX_BYTES / 2**20:.0f} MiB "
                "are read. Export fewer objects: cells and detections label nothing."
            )
        return read_regular(path, max_bytes=MAX_BYTES)
    except FileNotFoundError as error:
        raise BadAnnotationError(f"{path}: no such file. Correct `annotations` in the manifest.") from error
    except OSError as error:
        raise BadAnnotationError(f"{path}: cannot be read: {error.strerror}.") from error


def write_annotations(path: Path, file: AnnotationFile, to: Format) -> list[str]:
    """Write a file of the named format, whole or not at all.

    Returns:
        What the format cannot hold, one sentence each.
    """
    return WRITERS[to](path, file)
