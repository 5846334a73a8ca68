"""A TIFF's structure through tifffile: every call of it that can fail on a damaged file, each guarded by itself.

Sizes and offsets of a page are plain attributes, but of whatever type a damaged tag gives them: `has_plain_sizes` in
`validate.py` comes before they are used.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import tifffile

from pipeline.slides.common.damage import DamagedFileError, library_errors
from pipeline.slides.common.reading import disk_errors

# tifffile reports oddities of damaged files through logging; our errors say what matters.
logging.getLogger("tifffile").setLevel(logging.CRITICAL)

_TIFFFILE_ERRORS = (
    tifffile.TiffFileError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError,
    struct.error, OSError, RuntimeError, MemoryError, ElementTree.ParseError,
)  # fmt: skip
"""Exceptions that tifffile raises on files with false claims."""
_MAX_PAGES, _MAX_SUB_PAGES = 10_000, 100


_MOST_COLOURS = 3


@dataclass(frozen=True)
class Series:
    """Pages that tifffile takes for one image."""

    name: str
    axes: str
    shape: tuple[int, ...]
    keyframe: tifffile.TiffPage
    levels: tuple[tifffile.TiffPage, ...]
    offsets: frozenset[int]
    """Of all its pages, planes of a stack among them."""


class TiffStructure:
    """An open TIFF: its pages, series and texts, read when asked for. Use as a context manager.

    Raises:
        DamagedFileError: here and from everything below; tifffile cannot read it.
        UnreadableError: the disk or the network fails.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._slide_page: tifffile.TiffPage | None = None
        self.slide_image = 0
        """Number of the slide among the images of its OME-XML, from 0."""
        with self._guarded():
            self._tiff = tifffile.TiffFile(path)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with library_errors(_TIFFFILE_ERRORS), disk_errors(self._name):
            yield

    @cached_property
    def num_pages(self) -> int:
        with self._guarded():
            return len(self._tiff.pages)

    @cached_property
    def first(self) -> tifffile.TiffPage:
        with self._guarded():
            return self._tiff.pages.first

    def pages(self) -> list[tifffile.TiffPage]:
        """All pages of the chain, once each where it leads back into itself."""
        if self.num_pages > _MAX_PAGES:
            raise DamagedFileError(f"it has {self.num_pages} pages, and no slide more than {_MAX_PAGES}")
        with self._guarded():
            # Iterating would follow a chain that leads back into itself for ever.
            return [self._tiff.pages[index].aspage() for index in range(self.num_pages)]

    @cached_property
    def series(self) -> tuple[Series, ...]:
        with self._guarded():
            return tuple(
                Series(
                    str(one.name), str(one.axes), tuple(int(length) for length in one.shape), one.keyframe.aspage(),
                    tuple(level.keyframe.aspage() for level in one.levels),
                    frozenset(int(page.offset) for page in one.pages if page is not None),
                )
                for one in self._tiff.series
            )  # fmt: skip

    def stacked_pages(self, page: tifffile.TiffPage) -> list[tifffile.TiffPage]:
        """The pages that make up one image at one size together with a page, in their order; [page] where it is alone.

        Those of a stack with more than three are not read.
        """
        with self._guarded():
            for series in self._tiff.series:
                for level in series.levels:
                    if level.keyframe.offset == page.offset and 1 < len(level) <= _MOST_COLOURS:
                        return [one.aspage() for one in level.pages if one is not None]
        return [page]

    def is_of(self, *families: str) -> bool:
        """Whether tifffile takes it for a file of one of the families: svs, ome, philips, qpi, imagej, lsm."""
        with self._guarded():
            return any(bool(getattr(self._tiff, f"is_{family}")) for family in families)

    def sub_pages(self, page: tifffile.TiffPage) -> list[tifffile.TiffPage]:
        """Pages that hang below one of the chain (SubIFDs)."""
        with self._guarded():
            num_listed, below = len(page.subifds or ()), page.pages
            if num_listed > _MAX_SUB_PAGES:
                raise DamagedFileError(f"{num_listed} pages hang below page {page.index}")
            return [below[index].aspage() for index in range(num_listed)] if below is not None else []

    def use_page(self, page: tifffile.TiffPage, image: int) -> None:
        """Tags and description are this page's from now on; and what OME-XML says, this image's."""
        self._slide_page, self.slide_image = page, image

    @property
    def description(self) -> str:
        """Of the slide's page, or of the first while none was chosen; "" without."""
        return self.description_of(self._slide_page or self.first)

    def description_of(self, page: tifffile.TiffPage) -> str:
        with self._guarded():
            return str(page.description)

    @cached_property
    def ome_xml(self) -> str:
        """OME-XML; "" where the file has none."""
        with self._guarded():
            return (self._tiff.ome_metadata or "") if self._tiff.is_ome else ""

    @cached_property
    def philips_xml(self) -> str:
        """The XML of a Philips file; "" where it is none."""
        with self._guarded():
            return (self._tiff.philips_metadata or "") if self._tiff.is_philips else ""

    def tag(self, code: int, page: tifffile.TiffPage | None = None) -> Any:
        """A tag's value, of whatever type the file gives it; None without. Of the slide's page, unless one is named."""
        with self._guarded():
            tag = (self._slide_page or self.first if page is None else page).tags.get(code)
            return None if tag is None else tag.value

    def num_values(self, code: int, page: tifffile.TiffPage) -> int:
        """Number of values of a page's tag in the file; 0 without the tag."""
        with self._guarded():
            tag = page.tags.get(code)
            return 0 if tag is None else int(tag.count)

    def offset_behind_chain(self) -> int:
        """Offset of a further page, as stated by the last page that tifffile lists; 0 for none."""
        with self._guarded():
            fmt, last, handle = self._tiff.tiff, self._tiff.pages[-1].offset, self._tiff.filehandle
            handle.seek(last)
            num_tags = handle.read(fmt.tagnosize)
        if len(num_tags) < fmt.tagnosize:
            raise DamagedFileError(f"its last page stands at byte {last}, behind its end")
        (count,) = struct.unpack(fmt.tagnoformat, num_tags)
        with self._guarded():
            handle.seek(last + fmt.tagnosize + count * fmt.tagsize)
            following = handle.read(fmt.offsetsize)
        return int(struct.unpack(fmt.offsetformat, following.ljust(fmt.offsetsize, b"\0"))[0])

    def close(self) -> None:
        self._tiff.close()

    def __enter__(self) -> TiffStructure:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
