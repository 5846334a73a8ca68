"""Reading and writing annotation files: the format is recognised by a file's content, not by its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pipeline.annotations.formats import asap, layers, ndpa
from pipeline.annotations.formats.asap import read_asap, write_asap
from pipeline.annotations.formats.decimal_commas import check_commas
from pipeline.annotations.formats.dsa import is_dsa, read_dsa
from pipeline.annotations.formats.imagescope import write_imagescope
from pipeline.annotations.formats.layers import read_layers
from pipeline.annotations.formats.ndpa import read_ndpa
from pipeline.annotations.formats.other_programs import binary_of, program_of_json, program_of_xml
from pipeline.annotations.formats.qupath import read_qupath
from pipeline.annotations.formats.qupath_writer import write_qupath
from pipeline.annotations.formats.xml_ import parse_xml
from pipeline.annotations.shapes.objects import IGNORED_ENDING, AnnotationFile, WritableFormat
from pipeline.bounded import Limits, within
from pipeline.errors import BadAnnotationError
from training.foundation.reading import parse_json, read_regular
from training.foundation.words.class_names import check_class_name
from training.foundation.words.counts import counted

MAX_SHOWN = 5
"""Sentences in a message."""
MAX_BYTES = 1 << 30
"""A file is read whole and takes about ten times its size in memory."""

XML_READERS = {asap.ROOT: read_asap, layers.ROOT: read_layers, ndpa.ROOT: read_ndpa}
READ = "QuPath (GeoJSON), ASAP, ImageScope or HALO (XML), the Digital Slide Archive (JSON) or NDP.view (NDPA)"
WRITERS: dict[WritableFormat, Callable[[Path, AnnotationFile], list[str]]] = {
    "qupath": write_qupath,
    "asap": write_asap,
    "imagescope": write_imagescope,
}
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def read_annotations(path: Path) -> AnnotationFile:
    """Read an annotation file of any supported program.

    Raises:
        BadAnnotationError: missing, too large, of another kind, damaged, without a single object, with an invalid
            class name, or with outlines that take minutes and gigabytes.
    """
    data = _read(path)
    with within(Limits.for_file(len(data)), str(path)):
        return parse_annotations(data, path)


def parse_annotations(data: bytes, path: Path) -> AnnotationFile:
    """Parse a file's bytes; `path` is for messages. Raises: as `read_annotations`."""
    file = _parsed(path, data)
    if not file.objects:
        left_out = [*file.dropped, *file.notes]
        more = f" and {len(left_out) - MAX_SHOWN} more" if len(left_out) > MAX_SHOWN else ""
        why = f" Its content is left out: {'; '.join(left_out[:MAX_SHOWN])}{more}." if left_out else ""
        raise BadAnnotationError(
            f"{path}: holds no annotation ({file.format}).{why} Export it again with the objects; if nothing was "
            "drawn on a slide, name no annotation file for it."
        )
    checked = _with_checked_class_names(file)
    return replace(checked, notes=(*checked.notes, *_ignored_classes(checked)))


def _ignored_classes(file: AnnotationFile) -> Iterator[str]:
    """A note on each class that QuPath ignores."""
    for name, count in sorted(Counter(obj.class_name for obj in file.objects if obj.has_ignored_class).items()):
        areas = counted(count, "area is", "areas are")
        why = f"a class that QuPath ignores, as its name ends in {IGNORED_ENDING}"
        yield f"{areas} of {name!r}, {why}: kept, but no class of tiles"


def _parsed(path: Path, data: bytes) -> AnnotationFile:
    binary = binary_of(data)
    if binary is not None:
        raise BadAnnotationError(f"{path}: {binary}. Supported annotations: {READ}.")
    is_xml = data[:4096].lstrip(b"".join(_BYTE_ORDER_MARKS) + b" \t\r\n\0").startswith(b"<")
    if is_xml:
        return _parsed_xml(path, data)
    try:
        # JSON tells UTF-8, UTF-16 and UTF-32 apart, with or without a byte order mark.
        content = parse_json(data)
        if is_dsa(content):
            return read_dsa(content, path.name)
        program = program_of_json(content)
        if program is not None:
            raise BadAnnotationError(f"{path}: is JSON of {program}. Supported annotations: {READ}.")
        return read_qupath(content, path.name)
    except (ValueError, RecursionError) as error:
        raise BadAnnotationError(
            f"{path}: is neither GeoJSON nor XML: {error}. Supported annotations: {READ}. Export it again from there."
        ) from error


def _parsed_xml(path: Path, data: bytes) -> AnnotationFile:
    root = parse_xml(data, path.name)
    if root.tag in XML_READERS:
        check_commas(root, path.name)
        return XML_READERS[root.tag](root, path.name)
    program = program_of_xml(root.tag)
    of = f" ({program})" if program else ""
    known = ", ".join(f"<{tag}>" for tag in XML_READERS)
    raise BadAnnotationError(
        f"{path}: is XML that starts with <{root.tag:.80}>{of}; supported XML starts with {known}. Supported "
        f"annotations: {READ}."
    )


def _with_checked_class_names(file: AnnotationFile) -> AnnotationFile:
    """Check and normalise class names, which go into tables, models and pages, and are compared there."""
    first = {obj.class_name: obj.where for obj in reversed(file.objects)}
    groups = {name: "a group" for group in file.groups for name in (group.name, group.parent)}
    normal: dict[str | None, str | None] = {None: None}
    for name, where in (dict.fromkeys(file.class_colors, "a colour") | groups | first).items():
        try:
            normal[name] = check_class_name(name) if name else name  # an object may have no class
        except ValueError as error:
            raise BadAnnotationError(f"{where}: {error}. Rename the class in the program that made it.") from error
    if all(name == normal_name for name, normal_name in normal.items()):
        return file
    return replace(
        file,
        objects=tuple(replace(obj, class_name=normal[obj.class_name]) for obj in file.objects),
        groups=tuple(replace(g, name=normal[g.name] or g.name, parent=normal[g.parent]) for g in file.groups),
        class_colors={normal[name] or name: color for name, color in reversed(list(file.class_colors.items()))},
    )


def _read(path: Path) -> bytes:
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise BadAnnotationError(
                f"{path}: is {path.stat().st_size / 2**20:.0f} MiB; the limit is {MAX_BYTES / 2**20:.0f} MiB. Export "
                "fewer objects: cells and detections label nothing."
            )
        return read_regular(path, max_bytes=MAX_BYTES)
    except FileNotFoundError as error:
        raise BadAnnotationError(f"{path}: no such file. Correct `annotations` in the manifest.") from error
    except OSError as error:
        raise BadAnnotationError(f"{path}: cannot be read: {error.strerror}.") from error


def write_annotations(path: Path, file: AnnotationFile, to: WritableFormat) -> list[str]:
    """Write a file of the named format, whole or not at all.

    Returns:
        Losses: one sentence for each thing that the format cannot hold.

    Raises:
        BadAnnotationError: the coordinates are not pixels, or outlines cross too often.
    """
    if file.unit != "px0":
        raise BadAnnotationError(
            "the annotation file (NDPA) is in nanometres from the centre of the glass slide, and other programs' "
            "files are in pixels. Name its slide with --slide."
        )
    with within(Limits.for_corners(file.num_corners), str(path)):
        return WRITERS[to](path, file)
