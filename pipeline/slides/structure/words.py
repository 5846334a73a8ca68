"""The words in a slide's own texts, so that a message that quotes them can be passed on without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.reading import is_dicom
from pipeline.slides.openslide.library import OpenSlideHandle, detect_vendor
from pipeline.slides.structure.dicom import texts_of_dicom
from pipeline.slides.tiff.library import TiffStructure
from pipeline.slides.tiff.reader import is_tiff
from training.foundation.errors import UnreadableError

HIDDEN = "…"
_WORD = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")
_LONG_NUMBER = 4
"""Digits of a year, or of a record; sizes in pixels may have as many, and are then hidden, too."""
_MAX_TEXT, _MAX_PAGES, _MAX_FILES = 2**20, 100, 20
_ASCII = 2


def hide_words_of(slide: Path, message: str) -> str:
    """A message without any word that is in a text of the slide."""
    words = {word.casefold() for text in _texts(slide) for word in _WORD.findall(text) if _can_name(word)}
    return _WORD.sub(lambda match: HIDDEN if match.group().casefold() in words else match.group(), message)


def _can_name(word: str) -> bool:
    return len(word) >= _LONG_NUMBER if word.isdecimal() else len(word) > 1


def _texts(path: Path) -> Iterator[str]:
    files = [path] if path.is_file() else [child for child in path.rglob("*") if child.is_file()]
    for file in files[:_MAX_FILES]:
        try:
            if is_dicom(file):
                yield from (text[:_MAX_TEXT] for text in texts_of_dicom(file))
            elif is_tiff(file):
                yield from _of_tiff(file)
            if path.is_file() and detect_vendor(file) is not None:
                yield from _of_openslide(file)
        except (DamagedFileError, NotBrightfieldRgbError, UnreadableError):
            continue


def _of_tiff(path: Path) -> Iterator[str]:
    with TiffStructure(path) as tiff:
        for page in tiff.pages()[:_MAX_PAGES]:
            for code, kind, _ in tiff.tag_kinds(page):
                if kind == _ASCII:
                    yield str(tiff.tag(code, page))[:_MAX_TEXT]


def _of_openslide(path: Path) -> Iterator[str]:
    handle = OpenSlideHandle(path)
    try:
        yield from (text[:_MAX_TEXT] for text in handle.properties.values())
    finally:
        handle.close()
