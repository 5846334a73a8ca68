"""Scan of an export for names. Every file is read; what cannot be judged is refused.

Text is searched for the names that the study knows. DICOM objects may have only the attributes of our own results, TIFF
files only our own descriptions, and images no text.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path

import tifffile

from pipeline.study.privacy.dicom_scan import judge_dicom
from pipeline.study.privacy.names import Names
from training.foundation.reading import read_regular

MAX_BYTES = 2**30
TEXT_SUFFIXES = (".csv", ".json", ".geojson", ".txt")


def find_identifiers(folder: Path, names: Collection[str]) -> list[str]:
    """Find problems with an export, a sentence for each; an empty list if it names nobody.

    Args:
        names: slides, patients, sites, readers, files.
    """
    known = Names.of(names)
    findings = []
    for path in sorted(folder.rglob("*")):
        where = path.relative_to(folder).as_posix()
        if known.first_in(where):
            findings.append(f"{where}: its name names a slide, patient, site, reader or file")
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            findings.append(f"{where}: is neither a file nor a folder")
        elif path.is_file():
            finding = _judge(path, known)
            if finding:
                findings.append(f"{where}: {finding}")
    return findings


def _judge(path: Path, names: Names) -> str | None:
    if path.suffix in TEXT_SUFFIXES:
        return _in_text(path, names)
    if path.suffix == ".dcm":
        return judge_dicom(path, names)
    if path.suffix in (".tif", ".tiff"):
        return _in_tiff(path, names)
    if path.suffix == ".png":
        return _in_png(path)
    return "is of a kind that cannot be judged"


def _in_text(path: Path, names: Names) -> str | None:
    try:
        text = read_regular(path, max_bytes=MAX_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return f"cannot be read ({type(error).__name__})"
    return "names a slide, patient, site, reader or file" if names.first_in(text) else None


def _in_tiff(path: Path, names: Names) -> str | None:
    try:
        with tifffile.TiffFile(path) as file:
            tags = [(tag.code, tag.value) for page in file.pages for tag in page.tags.values()]  # type: ignore[union-attr]
    except (OSError, ValueError, IndexError, struct.error, tifffile.TiffFileError) as error:
        return f"cannot be read as TIFF ({type(error).__name__})"
    for code, value in tags:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if not isinstance(text, str):
            if code not in NUMBERS_OF_TIFF:
                return f"has the unknown tag {code}"
        elif code not in (DESCRIPTION, SOFTWARE) or not text.lstrip().startswith(OUR_DESCRIPTIONS):
            return f"has a text in tag {code} that is not ours"
        elif names.first_in(text):
            return f"tag {code} names a slide, patient, site, reader or file"
    return None


DESCRIPTION, SOFTWARE = 270, 305
OUR_DESCRIPTIONS = ("<?xml", "<OME", '{"shape"', "tifffile", "gemslide")
NUMBERS_OF_TIFF = frozenset({
    254, 256, 257, 258, 259, 262, 273, 274, 277, 278, 279, 282, 283, 284, 296, 317, 320, 322, 323, 324, 325, 330, 338,
    339, 347, 530, 531, 532,
})  # fmt: skip
"""Tags that say how pixels are stored."""


def _in_png(path: Path) -> str | None:
    """Find a chunk of a PNG file that does not describe how pixels are shown."""
    data = read_regular(path, max_bytes=MAX_BYTES)
    if not data.startswith(PNG_SIGNATURE):
        return "cannot be read as PNG"
    at = len(PNG_SIGNATURE)
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind not in PIXEL_CHUNKS:
            return f"has the chunk {kind!r}, which can carry text"
        at += length + 12
    return None if at == len(data) else "cannot be read as PNG"


PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PIXEL_CHUNKS = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"sBIT"))
