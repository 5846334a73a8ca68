"""Does an export name anybody? Every file is read; what nobody can judge is refused.

Text is searched for the names that the study knows. Of DICOM objects only the attributes may occur that our own results
have; of TIFF files only our own descriptions; of pictures none that carries text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pydicom
import tifffile
from PIL import Image, UnidentifiedImageError
from pydicom.datadict import keyword_for_tag

from pipeline.study.privacy.dicom_attributes import ALLOWED, MUST_BE_EMPTY
from training.foundation.reading import read_regular

MAX_BYTES = 2**30
SHORTEST = 4
"""Names of fewer letters, or of fewer digits, would be found in numbers and words by chance."""
TEXT_SUFFIXES = (".csv", ".json", ".geojson", ".txt")
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
_ENDS = ".-_"


@dataclass(frozen=True)
class Names:
    """Names that must not leave, for searching."""

    tokens: frozenset[str]
    phrases: tuple[str, ...]
    """Those that are more than one word."""

    @classmethod
    def of(cls, names: Collection[str]) -> Names:
        searched = {name.casefold() for name in names if is_searchable(name)}
        tokens = frozenset(name for name in searched if _TOKEN.fullmatch(name))
        return cls(tokens, tuple(sorted(searched - tokens)))

    def first_in(self, text: str) -> str | None:
        """A name that stands in a text; None where none does."""
        folded = text.casefold()
        for match in _TOKEN.finditer(folded):
            for token in _readings(match[0]):
                if token in self.tokens:
                    return token
        return next((phrase for phrase in self.phrases if phrase in folded), None)


def is_searchable(name: str) -> bool:
    """Whether a name is long enough to be told from chance."""
    return len(name) >= SHORTEST and not (name.isdigit() and len(name) < SHORTEST + 2)


def _readings(token: str) -> Iterator[str]:
    """A word as it stands, without points at its ends, without suffixes as of a file, and its parts."""
    yield token
    yield token.strip(_ENDS)
    stem = token
    while "." in stem:
        stem = stem.rpartition(".")[0]
        yield stem
    yield from re.split(r"[_.-]", token)


def find_identifiers(folder: Path, names: Collection[str]) -> list[str]:
    """What is wrong with an export, a sentence for each file; nothing where it names nobody.

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
        return _in_dicom(path, names)
    if path.suffix in (".tif", ".tiff"):
        return _in_tiff(path, names)
    if path.suffix == ".png":
        return _in_png(path)
    return "is of a kind that nobody here can judge"


def _in_text(path: Path, names: Names) -> str | None:
    try:
        text = read_regular(path, max_bytes=MAX_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return f"cannot be read ({type(error).__name__})"
    return "names a slide, patient, site, reader or file" if names.first_in(text) else None


def _in_dicom(path: Path, names: Names) -> str | None:
    try:
        dataset = pydicom.dcmread(path, stop_before_pixels=True)
        elements = [*dataset.file_meta, *dataset.iterall()]
    except (OSError, ValueError, AttributeError, pydicom.errors.InvalidDicomError) as error:
        return f"cannot be read as DICOM ({type(error).__name__})"
    for element in elements:
        keyword = keyword_for_tag(element.tag)
        if keyword in MUST_BE_EMPTY:
            if not _is_empty(element.value):
                return f"has {keyword}, which can say whose slide it is"
        elif keyword not in ALLOWED:
            return f"has the attribute {keyword or element.tag}, which our own results do not have"
        if element.VR in TEXTS and names.first_in(str(element.value)):
            return f"{keyword} names a slide, patient, site, reader or file"
    return None


TEXTS = frozenset({"AE", "CS", "LO", "LT", "PN", "SH", "ST", "UC", "UR", "UT", "DA", "DT", "IS"})


def _is_empty(value: object) -> bool:
    return value is None or str(value).strip("^ ") in ("", "[]", "None")


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
            return f"has a text of its own in tag {code}"
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
    try:
        with Image.open(path) as image:
            said = [key for key in image.info if key not in ("dpi", "gamma", "srgb", "transparency")]
    except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        return f"cannot be read as PNG ({type(error).__name__})"
    return f"carries text ({', '.join(map(str, said[:3]))})" if said else None
