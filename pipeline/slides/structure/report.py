"""How a slide is built, whatever it is and whether or not it can be opened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.reading import first_bytes, is_dicom
from pipeline.slides.openslide.library import OpenSlideHandle, detect_vendor
from pipeline.slides.structure.dicom import describe_dicom
from pipeline.slides.structure.tiff import describe_tiff
from pipeline.slides.suffixes import slide_suffixes
from pipeline.slides.tiff.reader import is_tiff
from training.foundation.errors import UnreadableError

_FIRST_BYTES = 8
"""The signature of a format; what follows could be text."""
_NUMBER_CHARACTERS = set("0123456789.-+e")


def describe_structure(path: Path) -> dict[str, Any]:
    """Facts about a file or folder, without names, texts and pixels.

    Raises:
        UnreadableError: it cannot be read at all.
    """
    if path.is_dir():
        files = [child for child in path.rglob("*") if child.is_file()]
        suffixes = dict(Counter(_suffix(child) for child in files))
        return {"kind": "folder", "files": suffixes, "bytes": sum(f.stat().st_size for f in files), **_of_folder(path)}
    facts = {
        "kind": "file",
        "suffix": _suffix(path),
        "bytes": path.stat().st_size,
        "first_bytes": first_bytes(path, _FIRST_BYTES).hex(),
        "openslide": _by_openslide(path),
    }
    if is_dicom(path):
        facts["dicom"] = describe_dicom(path)
    if is_tiff(path):
        facts["tiff"] = describe_tiff(path)
    return facts


def _of_folder(path: Path) -> dict[str, Any]:
    dicom = describe_dicom(path)
    return {"dicom": dicom} if dicom["files"] else {}


def _suffix(path: Path) -> str:
    """A suffix that says what a file is; any other could be part of a name."""
    known = {*slide_suffixes(), ".dat", ".ini", ".json", ".xml", ".jpg", ".txt"}
    return path.suffix.lower() if path.suffix.lower() in known else "other" if path.suffix else "none"


def _by_openslide(path: Path) -> dict[str, Any]:
    """The family that OpenSlide sees, and the numbers that it reports under its own names."""
    vendor = detect_vendor(path)
    if vendor is None:
        return {"vendor": None}
    try:
        handle = OpenSlideHandle(path)
    except (NotBrightfieldRgbError, UnreadableError) as error:
        return {"vendor": vendor, "cannot be opened": type(error).__name__}
    try:
        return {"vendor": vendor, "numbers": dict(filter(_is_number, sorted(handle.properties.items())))}
    finally:
        handle.close()


def _is_number(item: tuple[str, str]) -> bool:
    name, text = item
    is_its_own = name.startswith("openslide.") and not name.startswith("openslide.quickhash")
    return is_its_own and bool(text) and set(text) <= _NUMBER_CHARACTERS
